// Handing things to whichever thread takes them first.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "collectives/sync/primitives.h"
#include "collectives/sync/wait_word.h"

namespace collectives {

// A queue without bound. Threads: any thread.
template <typename T>
class HandOver {
 public:
  // `copies` of it, each for one taker. Takes a lock for a moment.
  void Put(const T& thing, int copies) {
    {
      const std::lock_guard<sync::Mutex> lock(mutex_);
      for (int i = 0; i < copies; ++i) queue_.push_back(thing);
    }
    word_.NotifyAll();
  }

  // Blocks until there is one, for about `limit` at most.
  // Result: whether there was one.
  bool Take(T& thing, std::chrono::nanoseconds limit) {
    return word_.Await(limit, [&] { return TryTake(thing); });
  }

 private:
  bool TryTake(T& thing) {
    const std::lock_guard<sync::Mutex> lock(mutex_);
    if (queue_.empty()) return false;
    thing = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

  WaitWord word_;
  sync::Mutex mutex_;
  std::deque<T> queue_;  // guarded by mutex_
};

}  // namespace collectives
