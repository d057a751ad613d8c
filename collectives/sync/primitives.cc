#include "collectives/sync/primitives.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace collectives::sync {

static_assert(sizeof(atomic<uint32_t>) == sizeof(uint32_t),
              "a futex is 32 bits");

void Yield() { sched_yield(); }

void FutexWait(atomic<uint32_t>& word, uint32_t expected,
               std::chrono::nanoseconds limit) {
  const timespec timeout{static_cast<time_t>(limit.count() / 1'000'000'000),
                         static_cast<long>(limit.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

void FutexWakeAll(atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace collectives::sync
