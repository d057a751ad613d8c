#include "collectives/sync/wait_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace collectives {

void WaitWord::Yield() { sched_yield(); }

void WaitWord::Sleep(uint32_t epoch, std::chrono::nanoseconds limit) {
  static_assert(sizeof(epoch_) == sizeof(uint32_t), "a futex is 32 bits");
  const timespec timeout{static_cast<time_t>(limit.count() / 1'000'000'000),
                         static_cast<long>(limit.count() % 1'000'000'000)};
  // (B) seq_cst, pairs with (C) and (D): the count is visible before the
  // kernel reads the epoch. Weaker, both sides could miss each other and the
  // sleeper would stay until `limit`.
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &epoch_, FUTEX_WAIT_PRIVATE, epoch, &timeout, nullptr, 0);
  // Relaxed: a notifier that still counts us makes one idle system call.
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void WaitWord::NotifyAll() {
  // (C) seq_cst, pairs with (A): publishes the condition; and with (B), as
  // there.
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  // (D) seq_cst, pairs with (B).
  if (waiters_.load(std::memory_order_seq_cst) > 0) {
    syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
            0);
  }
}

}  // namespace collectives
