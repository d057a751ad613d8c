// Sleeping until another thread has changed something.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace collectives {

// An event count: threads wait for a condition that others make true.
//
//   waiter                               notifier
//   ------                               --------
//   e = epoch            (A)
//   condition false                      make the condition true
//   waiters + 1          (B)             epoch + 1             (C)
//   sleep while epoch == e               waiters > 0 -> wake   (D)
//
// Either the sleeper's kernel sees the new epoch or the notifier sees the
// sleeper. The condition itself carries its own acquire and release.
// Threads: any thread.
class WaitWord {
 public:
  // Returns when `condition()` holds or about `limit` has passed: about ten
  // yields, then a futex, so that a computing rank keeps its core.
  // Result: whether the condition held at the last look.
  template <typename Condition>
  bool Await(std::chrono::nanoseconds limit, Condition condition) {
    for (int i = 0; i < kYields; ++i) {
      if (condition()) return true;
      Yield();
    }
    // (A) acquire, pairs with (C): a condition made true before the epoch we
    // read is seen by the look that follows.
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (condition()) return true;
    Sleep(epoch, limit);
    return condition();
  }

  // Call after making a condition true.
  void NotifyAll();

 private:
  static constexpr int kYields = 10;  // ../../docs/collectives.md, "Waiting"

  static void Yield();
  void Sleep(uint32_t epoch, std::chrono::nanoseconds limit);

  // Written by notifiers, read by waiters and their kernel.
  std::atomic<uint32_t> epoch_{0};
  // Written by waiters, read by notifiers, to save them the system call.
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace collectives
