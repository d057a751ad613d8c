// One collective of a channel: the ranks meet in it, match, and move its data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "collectives/rank/failure.h"
#include "collectives/rank/pending.h"
#include "collectives/shm/movement.h"
#include "collectives/sync/wait_word.h"

namespace collectives {

class Round;

// Counted reference to a Round. Threads: each reference has one owner.
class RoundRef {
 public:
  RoundRef() = default;
  explicit RoundRef(Round* round);  // adds a reference
  RoundRef(const RoundRef& other) : RoundRef(other.round_) {}
  RoundRef(RoundRef&& other) noexcept
      : round_(std::exchange(other.round_, nullptr)) {}
  RoundRef& operator=(RoundRef other) noexcept {
    std::swap(round_, other.round_);
    return *this;
  }
  ~RoundRef();

  Round* operator->() const { return round_; }
  Round& operator*() const { return *round_; }
  explicit operator bool() const { return round_ != nullptr; }

 private:
  Round* round_ = nullptr;
};

// Rounds of a channel form a list in order of their sequence numbers; each
// rank holds a cursor into it, so any number may be in flight.
//
//   rank r                     the last rank            every claimer
//   ------                     -------------            -------------
//   write its call
//   Arrive           (A) --->  Arrive is last (A)
//                              compare, plan
//                              open -> matched (B) -->  sees matched      (C)
//                                                       claim a chunk     (D)
//                                                       move its data
//                                                       chunks left - 1   (E)
//   sees done        (C) <---------------------------   last: -> done     (F)
//
// open -> failed is the other way out: once, by whoever gives up first (B).
// A matched round always runs to its end, by whichever threads claim chunks.
class Round {
 public:
  using Stage = Pending::Stage;

  Round(int ranks, uint64_t sequence)
      : sequence_(sequence), posts_(static_cast<size_t>(ranks)) {}
  ~Round();
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  uint64_t sequence() const { return sequence_; }
  int ranks() const { return static_cast<int>(posts_.size()); }

  // The round after this one, made by the first rank that asks. Any thread.
  RoundRef Next();

  // Posts rank `rank`'s call. The last rank to come matches the round and,
  // when that is quicker than waking anyone, moves its data.
  // Result: true for the rank that matched it with chunks left to move.
  // Threads: the rank's own thread, once.
  bool Arrive(int rank, Call call);

  // Claims and moves chunks until none is left. Only once stage() is kMatched
  // or kDone: before, the plan is being written.
  void MoveChunks();

  // Gives the round up if it is still open. Any thread.
  void Fail(Failure failure);

  Stage stage() const;
  const Failure& failure() const;  // stage() == kFailed only
  // What others wait on for stage() to change.
  WaitWord& word() { return word_; }

  // The rank's own call, and whether the rank has come. Any thread for
  // has_arrived; call() for the rank itself, or after has_arrived.
  const Call& call(int rank) const { return post(rank).call; }
  bool has_arrived(int rank) const;

  // After stage() == kDone.
  int64_t matched_ns() const { return matched_ns_; }
  int64_t done_ns() const { return done_ns_; }
  int64_t num_chunks() const { return num_chunks_; }
  // Duplicate only: the new channel's first round, once for each rank.
  RoundRef TakeChild(int rank) { return std::move(posts_[rank].child); }

 private:
  friend class RoundRef;

  struct Post {
    // Written by the rank before it arrives; constant after.
    Call call;
    std::atomic<bool> has_arrived{false};
    // Written by the last rank before "done", taken by the rank after it.
    RoundRef child;
  };

  const Post& post(int rank) const { return posts_[static_cast<size_t>(rank)]; }
  bool Match();
  void Plan(const std::vector<const Call*>& calls);
  bool Settle(uintptr_t state);
  void Finish();
  void Release();

  const uint64_t sequence_;
  std::vector<Post> posts_;
  WaitWord word_;

  // 0 open, 1 matched, 2 done, else a Failure*. One compare-and-swap leaves
  // "open", so a match and a failure exclude each other.
  std::atomic<uintptr_t> state_{0};
  std::atomic<int> arrived_{0};
  std::atomic<Round*> next_{nullptr};  // owns one reference
  std::atomic<int> references_{0};

  // Written by the last rank before "matched", constant after.
  Movement movement_;
  int64_t chunk_elems_ = 0;
  int64_t num_chunks_ = 0;
  int64_t matched_ns_ = 0;

  std::atomic<int64_t> next_chunk_{0};
  std::atomic<int64_t> chunks_left_{0};
  int64_t done_ns_ = 0;  // written by the last mover before "done"
};

}  // namespace collectives
