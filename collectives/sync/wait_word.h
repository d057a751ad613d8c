// Sleeping until another thread has changed something.
#pragma once

#include <chrono>
#include <cstdint>

#include "collectives/sync/primitives.h"

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
  // Returns when `condition()` holds or about `limit` has passed: `spins`
  // looks, about ten yields, then a futex, so that a computing rank keeps its
  // core. Spin only where nobody who is waited for may need this core.
  // Result: whether the condition held at the last look.
  template <typename Condition>
  bool Await(std::chrono::nanoseconds limit, Condition condition,
             int spins = 0) {
    for (int i = 0; i < spins; ++i) {
      if (condition()) return true;
      sync::Pause();
    }
    for (int i = 0; i < sync::kYields; ++i) {
      if (condition()) return true;
      sync::Yield();
    }
    // (A) acquire, pairs with (C): a condition made true before the epoch we
    // read is seen by the look that follows.
    const uint32_t epoch = epoch_.load(sync::memory_order_acquire);
    if (condition()) return true;
    // (B) seq_cst, pairs with (C) and (D): the count is visible before the
    // kernel reads the epoch. Weaker, both sides could miss each other and the
    // sleeper would stay until `limit`.
    waiters_.fetch_add(1, sync::memory_order_seq_cst);
    sync::FutexWait(epoch_, epoch, limit);
    // Relaxed: a notifier that still counts us makes one idle system call.
    waiters_.fetch_sub(1, sync::memory_order_relaxed);
    return condition();
  }

  // Call after making a condition true.
  void NotifyAll() {
    // (C) seq_cst, pairs with (A): publishes the condition; and with (B), as
    // there.
    epoch_.fetch_add(1, sync::memory_order_seq_cst);
    // (D) seq_cst, pairs with (B).
    if (waiters_.load(sync::memory_order_seq_cst) > 0) {
      sync::FutexWakeAll(epoch_);
    }
  }

 private:
  // Written by notifiers, read by waiters and their kernel.
  sync::atomic<uint32_t> epoch_{0};
  // Written by waiters, read by notifiers, to save them the system call.
  sync::atomic<uint32_t> waiters_{0};
};

}  // namespace collectives
