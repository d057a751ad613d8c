// What one rank of a shared-memory group has, over all its channels.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/record/recorder.h"
#include "collectives/shm/continuations.h"
#include "collectives/shm/round.h"
#include "collectives/sync/abort_flag.h"

namespace collectives {

// What the ranks of a run share.
struct ShmGroup {
  ShmGroup(int ranks, std::chrono::nanoseconds timeout)
      : ranks(ranks), timeout(timeout), has_left(static_cast<size_t>(ranks)) {}

  const int ranks;
  const std::chrono::nanoseconds timeout;
  AbortFlag abort;
  // Written by each rank when its function has returned, read by waiters.
  std::vector<std::atomic<bool>> has_left;
};

//   rank r                     rank that waits for r
//   ------                     ---------------------
//   its calls
//   Leave            (L) --->  has left             (M)
//                              has r arrived: the answer is final
//
// Threads: the rank's own, one caller at a time; CallerGuard refuses others.
class RankState {
 public:
  RankState(std::shared_ptr<ShmGroup> group, int rank, size_t record_capacity)
      : group_(std::move(group)), recorder_(rank, record_capacity) {}

  ShmGroup& group() { return *group_; }
  int rank() const { return recorder_.rank(); }
  Recorder& recorder() { return recorder_; }

  // Says that this rank will make no more calls, and forgets what it deferred.
  void Leave();

  // Throws PeerFailed if the group has failed.
  void ThrowIfAborted() const;

  // What waits to be run. Under a CallerGuard only.
  Continuations& continuations() { return continuations_; }
  // Runs what is ready and drops what has failed. Does nothing from inside a
  // continuation.
  void RunContinuations();

  // Waits until `round` is settled, moving data meanwhile; gives it up when a
  // peer has failed or left, or at the deadline. Any thread.
  void Await(Round& round) const;
  // One look; true if settled. Any thread.
  bool Poll(Round& round, int64_t since_ns) const;
  // Throws what the round's failure says, if it has failed.
  void ThrowIfFailed(const Round& round, const std::string& channel) const;

 private:
  friend class CallerGuard;

  void GiveUpIfHopeless(Round& round, int64_t since_ns) const;
  std::chrono::nanoseconds Slice() const;
  void AwaitCause() const;

  std::shared_ptr<ShmGroup> group_;
  Recorder recorder_;
  Continuations continuations_;
  // Written and read by the rank's thread. Atomic because a second caller may
  // look before it is refused.
  std::atomic<bool> is_running_continuations_{false};
  std::atomic<bool> is_busy_{false};  // written and read by CallerGuard
};

// Refuses a second caller of one rank. Errors: InvalidArgument.
//
//   this caller                the next one
//   -----------                ------------
//   uses the state
//   ~CallerGuard     (O) --->  CallerGuard          (N)
class CallerGuard {
 public:
  explicit CallerGuard(RankState& state);
  ~CallerGuard();
  CallerGuard(const CallerGuard&) = delete;
  CallerGuard& operator=(const CallerGuard&) = delete;

 private:
  RankState& state_;
};

}  // namespace collectives
