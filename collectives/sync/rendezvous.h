// Where the ranks of one collective meet: it matches or fails, once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/sync/primitives.h"
#include "collectives/sync/wait_word.h"

namespace collectives {

// Of a collective.
enum class Stage { kOpen, kMatched, kDone, kFailed };

//   each party                 the last party          any thread
//   ----------                 --------------          ----------
//   write what it brings
//   Arrive           (A) --->  Arrive is last (A)
//                              compare, plan
//                              Match         (B) --->  stage()            (C)
//                              work
//   stage()          (C) <---  Finish        (F)
//
// open -> failed is the other way out: once, by whoever gives up first (B). So
// a match and a failure exclude each other, and what has matched is finished
// whatever its parties do.
// Threads: any thread, but for what says otherwise.
template <typename Failure>
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous() { Clear(); }

  // Once for each party. Result: whether it is the last of them.
  bool Arrive(int parties) {
    // (A) acq_rel, pairs with itself: publishes what this party brings; the
    // last one sees what all have brought.
    return arrived_.fetch_add(1, sync::memory_order_acq_rel) + 1 == parties;
  }

  // By the last party. Result: false if it was given up before.
  bool Match() { return Leave(kMatched); }

  // Result: false if it has matched, or failed, before.
  bool Fail(Failure failure) {
    auto made = std::make_unique<Failure>(std::move(failure));
    if (!Leave(reinterpret_cast<uintptr_t>(made.get()))) return false;
    made.release();
    word_.NotifyAll();
    return true;
  }

  // After Match, by whoever did the last of the work.
  void Finish() {
    // (F) release, pairs with (C): publishes the work. No compare-and-swap:
    // nobody else leaves "matched".
    state_.store(kDone, sync::memory_order_release);
    word_.NotifyAll();
  }

  Stage stage() const {
    // (C) acquire, pairs with (B) and (F).
    const uintptr_t state = state_.load(sync::memory_order_acquire);
    if (state == kOpen) return Stage::kOpen;
    if (state == kMatched) return Stage::kMatched;
    return state == kDone ? Stage::kDone : Stage::kFailed;
  }

  // Only where stage() is kFailed.
  const Failure& failure() const {
    // Relaxed: stage() has seen it.
    return *reinterpret_cast<const Failure*>(
        state_.load(sync::memory_order_relaxed));
  }

  // What to wait on for stage() to change. A match alone wakes nobody: notify
  // where there is something to help with.
  WaitWord& word() { return word_; }

  // Open again, for other parties. Threads: the only one that knows of it.
  void Reset() {
    Clear();
    // Relaxed, both: published with the whole by its owner.
    state_.store(kOpen, sync::memory_order_relaxed);
    arrived_.store(0, sync::memory_order_relaxed);
  }

 private:
  static constexpr uintptr_t kOpen = 0;
  static constexpr uintptr_t kMatched = 1;
  static constexpr uintptr_t kDone = 2;

  bool Leave(uintptr_t state) {
    uintptr_t open = kOpen;
    // (B) release, pairs with (C): publishes the plan, or the failure. Relaxed
    // on failure: nothing is read then.
    return state_.compare_exchange_strong(
        open, state, sync::memory_order_release, sync::memory_order_relaxed);
  }

  void Clear() {
    // Relaxed: the last owner has seen what all others did.
    const uintptr_t state = state_.load(sync::memory_order_relaxed);
    if (state > kDone) delete reinterpret_cast<const Failure*>(state);
  }

  // One of these, or a Failure's address.
  sync::atomic<uintptr_t> state_{kOpen};
  sync::atomic<int> arrived_{0};
  WaitWord word_;
};

}  // namespace collectives
