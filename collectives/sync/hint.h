// A value that other threads may read at any time, and that may be out of date.
#pragma once

#include "collectives/sync/primitives.h"

namespace collectives {

// Saves a look at what is guarded otherwise; publishes nothing.
// Threads: any thread.
template <typename T>
class Hint {
 public:
  explicit Hint(T value) : value_(value) {}
  T get() const { return value_.load(sync::memory_order_relaxed); }
  void Set(T value) { value_.store(value, sync::memory_order_relaxed); }

 private:
  sync::atomic<T> value_;
};

}  // namespace collectives
