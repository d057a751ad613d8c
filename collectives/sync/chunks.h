// Dividing a piece of work among whoever has time for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/sync/primitives.h"

namespace collectives {

// Chunks 0 .. n-1 in a few equal shares. A mover empties the share that it
// calls home, then helps with the others: who had a chunk in its cache the
// last time gets it again, and nobody waits while chunks are left.
//
//   whoever opens it           every mover             the last mover
//   ----------------           -----------             --------------
//   Open, then publish  --->   claim a chunk   (D)
//                              do its work
//                              left - 1        (E) --> left is 0          (E)
//                                                      end the whole
// Threads: any number of movers, after Open has been published to them.
class Chunks {
 public:
  static constexpr int kMostShares = 8;

  // Threads: the only one that knows of it, before publishing.
  void Open(int64_t chunks, int shares) {
    chunks_ = chunks;
    shares_ = std::clamp(shares, 1, kMostShares);
    // Relaxed, both: published by whoever publishes the work.
    left_.store(chunks, sync::memory_order_relaxed);
    for (int s = 0; s < shares_; ++s) {
      next_[s].claimed.store(Begin(s), sync::memory_order_relaxed);
    }
  }

  int64_t size() const { return chunks_; }

  // Claims chunks until none is left, and calls work(chunk) for each; calls
  // end() after the last chunk of all is done, on the thread that did it.
  template <typename Work, typename End>
  void Drain(int home, Work work, End end) {
    for (int i = 0; i < shares_; ++i) {
      const int share = (home + i) % shares_;
      const int64_t until = Begin(share + 1);
      for (;;) {
        // (D) relaxed: the counter hands out numbers; the work was published
        // before.
        const int64_t chunk =
            next_[share].claimed.fetch_add(1, sync::memory_order_relaxed);
        if (chunk >= until) break;
        work(chunk);
        // (E) acq_rel, pairs with itself: publishes this chunk's work to the
        // last mover, which sees all of it.
        if (left_.fetch_sub(1, sync::memory_order_acq_rel) == 1) end();
      }
    }
  }

 private:
  // Shares lie apart, as their movers do.
  struct alignas(64) Share {
    sync::atomic<int64_t> claimed{0};
  };

  int64_t Begin(int share) const { return chunks_ * share / shares_; }

  int64_t chunks_ = 0;
  int shares_ = 1;
  sync::atomic<int64_t> left_{0};
  Share next_[kMostShares];
};

}  // namespace collectives
