// Guards sync/rendezvous.h and chunks.h under every schedule: how the ranks of
// one collective meet, match, move, fail and duplicate.
#include "collectives/sync/rendezvous.h"

#include <gtest/gtest.h>

#include "collectives/sync/chunks.h"
#include "collectives/sync/set_once.h"
#include "tests/protocols/model.h"

namespace collectives {
namespace {

struct Fault {
  Plain<int> who;
};

using Meeting = Rendezvous<Fault>;

void AwaitChange(Meeting& meeting, Stage from) {
  while (
      !meeting.word().Await(kEver, [&] { return meeting.stage() != from; })) {
  }
}

// A collective: each rank brings a number, the last one sums them up, and
// whoever has time writes the sum into each chunk.
template <int kRanks>
struct Collective {
  static constexpr int kChunks = 2;
  Meeting meeting;
  Chunks chunks;
  Plain<int> brought[kRanks];
  Plain<int> sum;
  Plain<int> moved[kChunks];
  Plain<int> ended_by;
  sync::atomic<int> num_moved{0};

  // Result: whether it was this rank that matched it.
  bool Post(int rank) {
    brought[rank] = rank + 1;
    if (!meeting.Arrive(kRanks)) return false;
    int total = 0;
    for (const auto& b : brought) total += b;
    sum = total;
    chunks.Open(kChunks, 2);
    if (!meeting.Match()) return false;
    meeting.word().NotifyAll();
    return true;
  }

  // Result: how it ended.
  Stage Settle(int rank) {
    for (;;) {
      const Stage stage = meeting.stage();
      if (stage == Stage::kDone || stage == Stage::kFailed) return stage;
      if (stage == Stage::kMatched) Move(rank);
      AwaitChange(meeting, stage);
    }
  }

  void Move(int rank) {
    const auto move = [&](int64_t chunk) {
      moved[chunk] = sum + static_cast<int>(chunk);
      num_moved.fetch_add(1, sync::memory_order_relaxed);
    };
    chunks.Drain(rank, move, [&] {
      for (const auto& m : moved) RL_ASSERT(m >= sum);
      ended_by = rank;
      meeting.Finish();
    });
  }

  void CheckMoved() const {
    constexpr int kSum = kRanks * (kRanks + 1) / 2;
    for (int c = 0; c < kChunks; ++c) RL_ASSERT(moved[c] == kSum + c);
    RL_ASSERT(ended_by >= 0);
    RL_ASSERT(num_moved.load(sync::memory_order_relaxed) == kChunks);
  }
};

// On the heap: chunks lie on cache lines of their own.
template <int kRanks>
using OwnCollective = std::unique_ptr<Collective<kRanks>>;

template <int kRanks>
struct Matching : rl::test_suite<Matching<kRanks>, kRanks> {
  OwnCollective<kRanks> call = std::make_unique<Collective<kRanks>>();

  void thread(unsigned rank) {
    call->Post(static_cast<int>(rank));
    RL_ASSERT(call->Settle(static_cast<int>(rank)) == Stage::kDone);
    call->CheckMoved();
  }
};

TEST(MatchingModel, EachRankSeesTheWholeResult) {
  ExpectNoError<Matching<2>>(3);
  ExpectNoError<Matching<3>>(2);
}

TEST(MatchingModel, APlantedErrorIsFound) {
  const std::string file = "sync/rendezvous.h";
  ExpectErrorWhere<Matching<2>>(file, rl::mo_acq_rel, rl::mo_relaxed, 3);
  ExpectErrorWhere<Matching<3>>(file, rl::mo_release, rl::mo_relaxed, 2);
  ExpectErrorWhere<Matching<2>>("sync/chunks.h", rl::mo_acq_rel, rl::mo_release,
                                3);
  ExpectErrorWhere<Matching<3>>("sync/chunks.h", rl::mo_acq_rel, rl::mo_acquire,
                                2);
}

// Two barriers: what is written before the first is read after it, and
// written anew after the second.
template <int kRanks>
struct Barriers : rl::test_suite<Barriers<kRanks>, kRanks> {
  Meeting meetings[2];
  Plain<int> mine[kRanks];

  void thread(unsigned rank) {
    mine[rank] = 1;
    Meet(meetings[0]);
    for (const auto& m : mine) RL_ASSERT(m == 1);
    Meet(meetings[1]);
    mine[rank] = 2;
  }
  void Meet(Meeting& meeting) {
    if (meeting.Arrive(kRanks)) {
      RL_ASSERT(meeting.Match());
      meeting.Finish();
    }
    for (Stage stage; (stage = meeting.stage()) != Stage::kDone;) {
      AwaitChange(meeting, stage);
    }
  }
};

TEST(BarrierModel, NobodyPassesBeforeAllHaveCome) {
  ExpectNoError<Barriers<2>>(3);
  ExpectNoError<Barriers<3>>(2);
}

TEST(BarrierModel, APlantedErrorIsFound) {
  const std::string file = "sync/rendezvous.h";
  ExpectErrorWhere<Barriers<2>>(file, rl::mo_acq_rel, rl::mo_release, 3);
  ExpectErrorWhere<Barriers<3>>(file, rl::mo_acquire, rl::mo_relaxed, 2);
}

// Rank 0 fails instead of coming. The others give the call up as soon as they
// see why.
template <int kRanks>
struct Aborting : rl::test_suite<Aborting<kRanks>, kRanks> {
  SetOnce<Fault> cause;
  Meeting meeting;
  sync::atomic<int> num_failed{0};

  void thread(unsigned rank) {
    if (rank == 0) {
      cause.Set({7});
      return;
    }
    RL_ASSERT(!meeting.Arrive(kRanks));
    while (meeting.stage() == Stage::kOpen) GiveUpIfHopeless();
    RL_ASSERT(meeting.stage() == Stage::kFailed);
    RL_ASSERT(meeting.failure().who == 7);
  }
  void GiveUpIfHopeless() {
    const Fault* fault = cause.get();
    if (!fault) return sync::Yield();
    if (meeting.Fail(*fault)) {
      num_failed.fetch_add(1, sync::memory_order_relaxed);
    }
  }
  void after() { RL_ASSERT(num_failed.load(sync::memory_order_relaxed) == 1); }
};

TEST(AbortModel, AllWhoWaitSeeTheCause) {
  ExpectNoError<Aborting<2>>(4);
  ExpectNoError<Aborting<3>>(3);
}

TEST(AbortModel, APlantedErrorIsFound) {
  ExpectErrorWhere<Aborting<2>>("sync/set_once.h", rl::mo_release,
                                rl::mo_relaxed, 4);
  ExpectErrorWhere<Aborting<3>>("sync/rendezvous.h", rl::mo_release,
                                rl::mo_relaxed, 3);
}

// The deadline of all ranks but the last passes at any moment; the last one
// waits for what comes of it.
template <int kRanks>
struct Deadline : rl::test_suite<Deadline<kRanks>, kRanks> {
  OwnCollective<kRanks> call = std::make_unique<Collective<kRanks>>();
  sync::atomic<int> num_outcomes{0};
  Plain<int> is_done[kRanks];

  void thread(unsigned index) {
    const int rank = static_cast<int>(index);
    bool has_decided = call->Post(rank);
    if (rank < kRanks - 1) {
      has_decided = call->meeting.Fail({rank}) || has_decided;
    }
    if (has_decided) {
      num_outcomes.fetch_add(1, sync::memory_order_relaxed);
    }
    is_done[rank] = call->Settle(rank) == Stage::kDone;
    if (is_done[rank]) {
      call->CheckMoved();
    } else {
      RL_ASSERT(call->meeting.failure().who < kRanks - 1);
    }
  }
  void after() {
    RL_ASSERT(num_outcomes.load(sync::memory_order_relaxed) == 1);
    for (const auto& d : is_done) RL_ASSERT(d == is_done[0]);
    if (!is_done[0]) {
      RL_ASSERT(call->num_moved.load(sync::memory_order_relaxed) == 0);
    }
  }
};

TEST(DeadlineModel, EitherAllFailAndNothingMovesOrAllAreDone) {
  ExpectNoError<Deadline<2>>(3);
  ExpectNoError<Deadline<3>>(2);
}

TEST(DeadlineModel, APlantedErrorIsFound) {
  const std::string file = "sync/rendezvous.h";
  ExpectErrorWhere<Deadline<2>>(file, rl::mo_release, rl::mo_relaxed, 3);
  ExpectErrorWhere<Deadline<3>>(file, rl::mo_acquire, rl::mo_relaxed, 2);
}

// The last rank makes a child for all; they take it and meet there.
template <int kRanks>
struct Duplicating : rl::test_suite<Duplicating<kRanks>, kRanks> {
  struct Child {
    Meeting meeting;
    Plain<int> name;
    Plain<int> brought[kRanks];
  };
  Meeting meeting;
  Plain<Child*> children[kRanks];

  void thread(unsigned rank) {
    if (meeting.Arrive(kRanks)) {
      auto* const child = new Child;
      child->name = 5;
      for (auto& c : children) c = child;
      RL_ASSERT(meeting.Match());
      meeting.Finish();
    }
    AwaitDone(meeting);
    Child* const mine = children[rank];
    children[rank] = nullptr;
    Use(*mine, rank);
    if (rank == 0) delete mine;
  }
  void Use(Child& child, unsigned rank) {
    RL_ASSERT(child.name == 5);
    child.brought[rank] = 1;
    if (child.meeting.Arrive(kRanks)) {
      for (const auto& b : child.brought) RL_ASSERT(b == 1);
      RL_ASSERT(child.meeting.Match());
      child.meeting.Finish();
    }
    AwaitDone(child.meeting);
    // Nobody may use it once it is destroyed.
    left.fetch_add(1, sync::memory_order_acq_rel);
    while (left.load(sync::memory_order_acquire) < kRanks) sync::Yield();
  }
  static void AwaitDone(Meeting& meeting) {
    for (Stage stage; (stage = meeting.stage()) != Stage::kDone;) {
      AwaitChange(meeting, stage);
    }
  }
  sync::atomic<int> left{0};
};

TEST(DuplicationModel, EachRankTakesTheSameChildWhole) {
  ExpectNoError<Duplicating<2>>(3);
  ExpectNoError<Duplicating<3>>(1);
}

TEST(DuplicationModel, APlantedErrorIsFound) {
  const std::string file = "sync/rendezvous.h";
  ExpectErrorWhere<Duplicating<2>>(file, rl::mo_release, rl::mo_relaxed, 3);
  ExpectErrorWhere<Duplicating<3>>(file, rl::mo_acquire, rl::mo_relaxed, 1);
}

}  // namespace
}  // namespace collectives
