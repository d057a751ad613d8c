// Something that one thread has at a time.
#pragma once

#include "collectives/sync/primitives.h"

namespace collectives {

//   holder                     the next one
//   ------                     ------------
//   uses what is claimed
//   Release          (O) --->  TryTake              (N)
// Threads: any thread; Release by the holder.
class Claim {
 public:
  bool TryTake() {
    // (N) acquire, pairs with (O): sees what the last holder wrote.
    return !is_taken_.exchange(true, sync::memory_order_acquire);
  }
  void Release() {
    // (O) release, pairs with (N).
    is_taken_.store(false, sync::memory_order_release);
  }

 private:
  sync::atomic<bool> is_taken_{false};
};

}  // namespace collectives
