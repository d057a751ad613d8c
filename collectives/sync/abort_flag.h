// The first failure of a group, for every rank to see.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace collectives {

struct FailureCause {
  int rank = 0;  // that failed
  std::string what;
};

// Raised once; the first cause stays.
//
//   failing rank                         any rank
//   ------------                         --------
//   build the cause
//   Raise         (A) ------------->     cause()       (B)
//                                        read the cause
// Threads: any thread.
class AbortFlag {
 public:
  AbortFlag() = default;
  AbortFlag(const AbortFlag&) = delete;
  AbortFlag& operator=(const AbortFlag&) = delete;
  // Relaxed: whoever destroys the flag has joined or outlived its users.
  ~AbortFlag() { delete cause_.load(std::memory_order_relaxed); }

  // True if this cause is the first.
  bool Raise(FailureCause cause) {
    auto made = std::make_unique<const FailureCause>(std::move(cause));
    const FailureCause* none = nullptr;
    // (A) release, pairs with (B): publishes the cause's text. On failure
    // relaxed: the other cause is not read here.
    if (!cause_.compare_exchange_strong(none, made.get(),
                                        std::memory_order_release,
                                        std::memory_order_relaxed)) {
      return false;
    }
    made.release();
    return true;
  }

  // Null while all is well. Lifetime: the flag's.
  const FailureCause* cause() const {
    // (B) acquire, pairs with (A).
    return cause_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<const FailureCause*> cause_{nullptr};
};

}  // namespace collectives
