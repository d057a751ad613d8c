// Something that one thread has at a time, and nobody waits for.
#pragma once

#include <atomic>

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
    return !is_taken_.exchange(true, std::memory_order_acquire);
  }
  void Release() {
    // (O) release, pairs with (N).
    is_taken_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace collectives
