// What collectives/sync is built from, for the model checker Relacy: put in
// place of collectives/sync/primitives.h by COLLECTIVES_SYNC_PRIMITIVES.
//
// Relacy runs the threads of a test one at a time and decides at each atomic
// access who goes on, and which of the values that the C++ memory model allows
// a load returns. It reports races (of Plain, model.h), failed assertions,
// deadlocks and leaks.
//
// Every order knows where it stands, so that a test can weaken one without a
// change to the header that has it.
#pragma once

// Relacy and the macros below would spoil these.
#include <gtest/gtest.h>
#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// clang-format off
#include <relacy/relacy.hpp>
// clang-format on

#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

#define memory_order_relaxed \
  Order { rl::mo_relaxed, __FILE__, __LINE__ }
#define memory_order_acquire \
  Order { rl::mo_acquire, __FILE__, __LINE__ }
#define memory_order_release \
  Order { rl::mo_release, __FILE__, __LINE__ }
#define memory_order_acq_rel \
  Order { rl::mo_acq_rel, __FILE__, __LINE__ }
#define memory_order_seq_cst \
  Order { rl::mo_seq_cst, __FILE__, __LINE__ }

// Relacy replaces the others.
inline void operator delete(void* memory, size_t) noexcept {
  ::operator delete(memory);
}
inline void operator delete[](void* memory, size_t) noexcept {
  ::operator delete[](memory);
}

namespace collectives::sync {

// A memory order and where it is written.
struct Order {
  rl::memory_order order;
  const char* file;
  unsigned line;

  rl::debug_info info() const { return {"", file, line}; }
};

// Orders of one file made weaker.
struct Weakening {
  std::string file;  // the end of its path
  unsigned line;     // 0: any
  int nth;           // of the orders on that line, from 1; 0: any
  rl::memory_order from;
  rl::memory_order to;
  int64_t uses = 0;

  bool Matches(const Order& order, int place) const {
    return order.order == from && (line == 0 || line == order.line) &&
           (nth == 0 || nth == place) &&
           std::string_view(order.file).ends_with(file);
  }
};

// In force while not null.
inline Weakening* weakening = nullptr;

// What an order means now. `place`: which of those on its line it is.
inline rl::memory_order InForce(const Order& order, int place = 1) {
  if (!weakening || !weakening->Matches(order, place)) return order.order;
  ++weakening->uses;
  return weakening->to;
}

// No default orders: in a protocol each is written down.
template <typename T>
class atomic {
 public:
  atomic() : atomic(T{}) {}
  // No other thread knows of it yet: not worth a choice of who goes on.
  atomic(T value) {
    const rl::preemption_disabler alone(rl::ctx());
    value_.store(value, rl::mo_relaxed, RL_INFO);
  }

  T load(Order order) const {
    return value_.load(InForce(order), order.info());
  }
  void store(T value, Order order) {
    value_.store(value, InForce(order), order.info());
  }
  T exchange(T value, Order order) {
    return value_(order.info()).exchange(value, InForce(order));
  }
  T fetch_add(T value, Order order) {
    return value_.fetch_add(value, InForce(order), order.info());
  }
  T fetch_sub(T value, Order order) {
    return value_.fetch_sub(value, InForce(order), order.info());
  }
  bool compare_exchange_weak(T& expected, T value, Order success,
                             Order failure) {
    return CompareExchange<true>(expected, value, success, failure);
  }
  bool compare_exchange_strong(T& expected, T value, Order success,
                               Order failure) {
    return CompareExchange<false>(expected, value, success, failure);
  }

 private:
  friend void FutexWait(atomic<uint32_t>& word, uint32_t expected,
                        std::chrono::nanoseconds limit);
  friend void FutexWakeAll(atomic<uint32_t>& word);

  template <bool kMayFailAnyway>
  bool CompareExchange(T& expected, T value, Order success, Order failure) {
    const bool are_alike =
        success.line == failure.line && success.order == failure.order;
    rl::memory_order done = InForce(success);
    rl::memory_order seen = InForce(failure, are_alike ? 2 : 1);
    const auto exchange = [&] {
      return value_.compare_exchange(rl::bool_t<kMayFailAnyway>(), expected,
                                     value, done, seen, success.info());
    };
    if (seen != rl::mo_acquire ||
        (done != rl::mo_relaxed && done != rl::mo_release)) {
      return exchange();
    }
    // Relacy has no such pair: it gets the order that will count.
    rl::ctx().sched();
    const rl::preemption_disabler alone(rl::ctx());
    if (value_.debug_value() == expected) {
      seen = rl::mo_relaxed;
    } else {
      done = rl::mo_acquire;
    }
    return exchange();
  }

  static constexpr int kMostThreads = 4;

  rl::atomic<T> value_;
  rl::waitset<kMostThreads> sleepers_;
};

class Mutex {
 public:
  void lock() { mutex_.lock(RL_INFO); }
  void unlock() { mutex_.unlock(RL_INFO); }

 private:
  rl::mutex mutex_;
};

inline constexpr int kYields = 0;

static inline void Pause() {}

// Static: primitives.cc has one of the same name.
static inline void Yield() { rl::yield(1, RL_INFO); }

// Sleeps until FutexWakeAll: `limit` never passes, so that a lost wake-up is a
// deadlock. The kernel's look at the word is no more than a seq_cst load, and
// waking up shows nothing of what the other thread did.
inline void FutexWait(atomic<uint32_t>& word, uint32_t expected,
                      std::chrono::nanoseconds) {
  if (word.value_.load(rl::mo_seq_cst, RL_INFO) != expected) return;
  rl::context& context = rl::ctx();
  // A systematic search would try waking for no reason without end.
  const bool may_wake_anyway = context.is_random_sched();
  word.sleepers_.park_current(context, false, may_wake_anyway, false, RL_INFO);
}

inline void FutexWakeAll(atomic<uint32_t>& word) {
  rl::ctx().sched();
  word.sleepers_.unpark_all(rl::ctx(), RL_INFO);
}

}  // namespace collectives::sync
