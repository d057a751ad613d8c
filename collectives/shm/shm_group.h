// What the ranks of one run share.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/rank/failure.h"
#include "collectives/shm/round.h"
#include "collectives/sync/milestone.h"
#include "collectives/sync/set_once.h"

namespace collectives {

// Threads: any thread.
class ShmGroup {
 public:
  ShmGroup(int ranks, std::chrono::nanoseconds timeout);

  int ranks() const { return ranks_; }
  // What a rank's chunks are at home with (Round::MoveChunks): the rank, or,
  // with more ranks than cores, the core that it is on.
  int HomeOf(int rank) const;

  // The first failure, for every rank to see.
  SetOnce<FailureCause>& abort() { return abort_; }

  // Says that a rank will make no more calls.
  void Leave(int rank);

  // Throws PeerFailed if the group has failed; says which call it was.
  void ThrowIfAborted(const std::string& channel, uint64_t sequence,
                      const Call& call) const;
  // Gives the cause of a withdrawal a moment to arrive.
  void AwaitCause() const;

  // Waits until `round` is settled, moving data meanwhile; gives it up when a
  // rank has failed or left, or at the deadline. `rank`: that waits.
  void Await(Round& round, int rank, int64_t since_ns) const;
  // Gives it up, without waiting, if it is still open for one of these reasons.
  void GiveUpIfHopeless(Round& round, int64_t since_ns) const;

 private:
  const int ranks_;
  const std::chrono::nanoseconds timeout_;
  const std::chrono::nanoseconds slice_;  // looks for failures this often
  const bool has_cores_;                  // one for each rank
  SetOnce<FailureCause> abort_;
  // Passed by each rank when its function has returned. If a rank has left,
  // whether it has arrived in a round is final.
  std::vector<Milestone> has_left_;
};

}  // namespace collectives
