// A value that is set at most once, by whoever comes first.
#pragma once

#include <memory>
#include <utility>

#include "collectives/sync/primitives.h"

namespace collectives {

// The first value stays.
//
//   whoever sets it                      any thread
//   ---------------                      ----------
//   build the value
//   Set           (P) ------------->     get           (Q)
//                                        read the value
// Threads: any thread.
template <typename T>
class SetOnce {
 public:
  SetOnce() = default;
  SetOnce(const SetOnce&) = delete;
  SetOnce& operator=(const SetOnce&) = delete;
  // Relaxed: whoever destroys it has joined or outlived its users.
  ~SetOnce() { delete value_.load(sync::memory_order_relaxed); }

  // True if this value is the first.
  bool Set(T value) {
    auto made = std::make_unique<T>(std::move(value));
    T* none = nullptr;
    // (P) release, pairs with (Q): publishes the value. On failure relaxed:
    // the other value is not read here.
    if (!value_.compare_exchange_strong(none, made.get(),
                                        sync::memory_order_release,
                                        sync::memory_order_relaxed)) {
      return false;
    }
    made.release();
    return true;
  }

  // Null before Set. Lifetime: this one's.
  const T* get() const {
    // (Q) acquire, pairs with (P).
    return value_.load(sync::memory_order_acquire);
  }

 private:
  sync::atomic<T*> value_{nullptr};
};

}  // namespace collectives
