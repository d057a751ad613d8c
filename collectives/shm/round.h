// One collective of a channel: the ranks meet in it, match, and move its data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call.h"
#include "collectives/rank/failure.h"
#include "collectives/rank/pending.h"
#include "collectives/shm/movement.h"
#include "collectives/sync/chain.h"
#include "collectives/sync/chunks.h"
#include "collectives/sync/milestone.h"
#include "collectives/sync/rendezvous.h"

namespace collectives {

struct ShmChannel;

// A node of its channel's chain; see Rendezvous, Chunks and Chain for how its
// threads work together. A matched round always runs to its end, by whichever
// threads claim chunks.
class alignas(64) Round {
 public:
  using Stage = collectives::Stage;

  explicit Round(int ranks);
  // As new: the round after `before`, or the first.
  void Renew(const Round* before);

  uint64_t sequence() const { return sequence_; }
  int ranks() const { return static_cast<int>(posts_.size()); }

  // Posts rank `rank`'s call, made at `posted_ns`. The last rank to come
  // matches the round and, when that is quicker than waking anyone, moves its
  // data. `home`: see MoveChunks.
  // Result: true for the rank that matched it with chunks left to move.
  // Threads: the rank's own thread, once.
  bool Arrive(int rank, Call&& call, int64_t posted_ns, int home);

  // Claims and moves chunks until none is left, first those that are at home
  // here (Chunks). Only once stage() is kMatched or kDone: before, the plan is
  // being written.
  void MoveChunks(int home);

  // Gives the round up if it is still open. Any thread.
  void Fail(Failure failure) { meeting_.Fail(std::move(failure)); }

  Stage stage() const { return meeting_.stage(); }
  const Failure& failure() const { return meeting_.failure(); }
  // What others wait on for stage() to change.
  WaitWord& word() { return meeting_.word(); }

  // The rank's own call, and whether the rank has come. Any thread for
  // has_arrived; call() for the rank itself, or after has_arrived.
  const Call& call(int rank) const { return post(rank).call; }
  bool has_arrived(int rank) const {
    return post(rank).arrived.is_passed(sequence_ + 1);
  }

  // After stage() == kMatched.
  bool has_async() const { return has_async_; }
  int64_t num_chunks() const { return chunks_.size(); }
  int64_t matched_ns() const { return matched_ns_; }
  // After stage() == kDone.
  int64_t done_ns() const { return done_ns_; }
  // Duplicate only: the new channel.
  const std::shared_ptr<ShmChannel>& child() const { return child_; }

 private:
  friend class Chain<Round>;

  struct alignas(64) Post {
    // Written by the rank before it arrives; constant after.
    Call call;
    int64_t posted_ns = 0;
    Milestone arrived;  // in the round of this sequence number, plus one
  };

  const Post& post(int rank) const { return posts_[static_cast<size_t>(rank)]; }
  bool Match();
  void Plan();
  void Finish();

  // One cache line: all that a small collective's ranks write to one another
  // besides their calls and data.
  Rendezvous<Failure> meeting_;
  ChainLink<Round> link;
  int64_t matched_ns_ = 0;  // written by the last rank before "matched"
  int64_t done_ns_ = 0;     // written by the last mover before "done"
  static_assert(sizeof(meeting_) + sizeof(ChainLink<Round>) + 16 <= 64);

  uint64_t sequence_ = 0;
  std::vector<Post> posts_;
  std::vector<const Call*> calls_;  // those of posts_

  // Written by the last rank before "matched", constant after.
  Movement movement_;
  int64_t chunk_elems_ = 0;
  bool has_async_ = false;
  std::shared_ptr<ShmChannel> child_;

  Chunks chunks_;
};

}  // namespace collectives
