// What one rank has, over all its channels, whatever the backend.
#pragma once

#include <cstddef>

#include "collectives/rank/continuations.h"
#include "collectives/record/recorder.h"
#include "collectives/sync/claim.h"

namespace collectives {

// Threads: the rank's own, one caller at a time; CallerGuard refuses others.
class RankState {
 public:
  RankState(int rank, size_t record_capacity)
      : recorder_(rank, record_capacity) {}

  int rank() const { return recorder_.rank(); }
  Recorder& recorder() { return recorder_; }

  // What waits to be run. Under a CallerGuard only.
  Continuations& continuations() { return continuations_; }
  // Runs what is ready and drops what has failed. Does nothing from inside a
  // continuation. Result: whether it has run any.
  bool RunContinuations();
  // The rank makes no more calls. A function that waits to be run may own a
  // Work and that this state: destroyed here, or never.
  void ForgetContinuations() { continuations_.TakeAll(); }

 private:
  friend class CallerGuard;

  Recorder recorder_;
  Continuations continuations_;
  Claim runner_;  // of who runs the continuations
  Claim caller_;  // of who is in a call: CallerGuard
};

// Refuses a second caller of one rank. Errors: InvalidArgument.
class CallerGuard {
 public:
  explicit CallerGuard(RankState& state) : state_(state) {
    if (!state.caller_.TryTake()) Refuse(state.rank());
  }
  ~CallerGuard() { state_.caller_.Release(); }
  CallerGuard(const CallerGuard&) = delete;
  CallerGuard& operator=(const CallerGuard&) = delete;

 private:
  [[noreturn]] static void Refuse(int rank);

  RankState& state_;
};

}  // namespace collectives
