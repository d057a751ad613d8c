// What the ranks of one run share.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "collectives/shm/round.h"
#include "collectives/sync/abort_flag.h"

namespace collectives {

//   rank r                     rank that waits for r
//   ------                     ---------------------
//   its calls
//   Leave            (L) --->  has left             (M)
//                              has r arrived: the answer is final
//
// Threads: any thread.
class ShmGroup {
 public:
  ShmGroup(int ranks, std::chrono::nanoseconds timeout)
      : ranks_(ranks),
        timeout_(timeout),
        has_left_(static_cast<size_t>(ranks)) {}

  int ranks() const { return ranks_; }
  AbortFlag& abort() { return abort_; }

  // Says that a rank will make no more calls.
  void Leave(int rank);

  // Throws PeerFailed if the group has failed.
  void ThrowIfAborted() const;
  // Gives the cause of a withdrawal a moment to arrive.
  void AwaitCause() const;

  // Waits until `round` is settled, moving data meanwhile; gives it up when a
  // rank has failed or left, or at the deadline.
  void Await(Round& round) const;
  // Gives it up, without waiting, if it is still open for one of these reasons.
  void GiveUpIfHopeless(Round& round, int64_t since_ns) const;

 private:
  std::chrono::nanoseconds Slice() const;

  const int ranks_;
  const std::chrono::nanoseconds timeout_;
  AbortFlag abort_;
  // Written by each rank when its function has returned, read by waiters.
  std::vector<std::atomic<bool>> has_left_;
};

}  // namespace collectives
