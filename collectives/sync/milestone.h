// Something that a thread gets past, for good.
#pragma once

#include "collectives/sync/primitives.h"

namespace collectives {

//   the thread                 any thread
//   ----------                 ----------
//   what comes before
//   Pass             (L) --->  is_passed            (M)
//                              sees what came before
class Milestone {
 public:
  void Pass() {
    // (L) release, pairs with (M): publishes what came before.
    is_passed_.store(true, sync::memory_order_release);
  }
  bool is_passed() const {
    // (M) acquire, pairs with (L).
    return is_passed_.load(sync::memory_order_acquire);
  }

 private:
  sync::atomic<bool> is_passed_{false};
};

}  // namespace collectives
