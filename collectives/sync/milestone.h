// How far a thread has come, for others to see.
#pragma once

#include <cstdint>

#include "collectives/sync/primitives.h"

namespace collectives {

//   the thread                 any thread
//   ----------                 ----------
//   what comes before
//   Pass             (L) --->  is_passed            (M)
//                              sees what came before
// Threads: Pass by one thread; is_passed by any.
class Milestone {
 public:
  // `place`: not 0.
  void Pass(uint64_t place = 1) {
    // (L) release, pairs with (M): publishes what came before.
    place_.store(place, sync::memory_order_release);
  }
  // Whether `place` is the last that was passed.
  bool is_passed(uint64_t place = 1) const {
    // (M) acquire, pairs with (L).
    return place_.load(sync::memory_order_acquire) == place;
  }

 private:
  sync::atomic<uint64_t> place_{0};
};

}  // namespace collectives
