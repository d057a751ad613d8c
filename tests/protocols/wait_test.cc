// Guards sync/wait_word.h, claim.h, hand_over.h, set_once.h and milestone.h
// under every schedule.
#include <gtest/gtest.h>

#include "collectives/sync/claim.h"
#include "collectives/sync/hand_over.h"
#include "collectives/sync/milestone.h"
#include "collectives/sync/set_once.h"
#include "collectives/sync/wait_word.h"
#include "tests/protocols/model.h"

namespace collectives {
namespace {

// One makes something and says so; all others sleep until then.
template <int kThreads>
struct Waking : rl::test_suite<Waking<kThreads>, kThreads> {
  WaitWord word;
  sync::atomic<bool> is_made{false};
  Plain<int> made;

  void thread(unsigned index) {
    if (index == 0) {
      made = 7;
      is_made.store(true, sync::memory_order_release);
      word.NotifyAll();
      return;
    }
    while (!word.Await(
        kEver, [&] { return is_made.load(sync::memory_order_acquire); })) {
    }
    RL_ASSERT(made == 7);
  }
};

// Threads take turns and sleep in between, all on one word.
template <int kThreads>
struct Turns : rl::test_suite<Turns<kThreads>, kThreads> {
  static constexpr int kTurns = kThreads + 1;
  WaitWord word;
  sync::atomic<int> turn{0};
  Plain<int> played;

  void thread(unsigned index) {
    for (int t = static_cast<int>(index); t < kTurns; t += kThreads) {
      while (!word.Await(
          kEver, [&] { return turn.load(sync::memory_order_acquire) == t; })) {
      }
      played = played + 1;
      turn.store(t + 1, sync::memory_order_release);
      word.NotifyAll();
    }
  }
  void after() { RL_ASSERT(played == kTurns); }
};

TEST(WaitWordModel, NoWakeUpIsLost) {
  ExpectNoError<Waking<2>>(4);
  ExpectNoError<Waking<3>>(3);
  ExpectNoError<Turns<2>>(3);
  ExpectNoError<Turns<3>>(2);
}

TEST(WaitWordModel, APlantedErrorIsFound) {
  const std::string file = "sync/wait_word.h";
  ExpectErrorWhere<Waking<2>>(file, rl::mo_acquire, rl::mo_relaxed, 4);
  ExpectErrorWhere<Waking<3>>(file, rl::mo_acquire, rl::mo_relaxed, 3);
}

// What a claim guards is used by one thread at a time.
template <int kThreads>
struct Claiming : rl::test_suite<Claiming<kThreads>, kThreads> {
  static constexpr int kRounds = 2;
  Claim claim;
  Plain<int> count;

  void thread(unsigned) {
    for (int i = 0; i < kRounds; ++i) {
      while (!claim.TryTake()) sync::Yield();
      count = count + 1;
      claim.Release();
    }
  }
  void after() { RL_ASSERT(count == kThreads * kRounds); }
};

TEST(ClaimModel, OneThreadHasItAtATime) {
  ExpectNoError<Claiming<2>>(4);
  ExpectNoError<Claiming<3>>(3);
}

TEST(ClaimModel, APlantedErrorIsFound) {
  const std::string file = "sync/claim.h";
  ExpectErrorWhere<Claiming<2>>(file, rl::mo_acquire, rl::mo_relaxed, 4);
  ExpectErrorWhere<Claiming<3>>(file, rl::mo_release, rl::mo_relaxed, 3);
}

// One hands out two things, all others take two each.
template <int kThreads>
struct Handing : rl::test_suite<Handing<kThreads>, kThreads> {
  HandOver<Plain<int>*> queue;
  Plain<int> things[2];
  sync::atomic<int> sum{0};

  void thread(unsigned index) {
    for (int i = 0; i < 2; ++i) index == 0 ? Give(i) : Take();
  }
  void Give(int i) {
    things[i] = i + 1;
    queue.Put(&things[i], kThreads - 1);
  }
  void Take() {
    Plain<int>* mine = nullptr;
    while (!queue.Take(mine, kEver)) {
    }
    sum.fetch_add(*mine, sync::memory_order_relaxed);
  }
  void after() {
    RL_ASSERT(sum.load(sync::memory_order_relaxed) == 3 * (kThreads - 1));
  }
};

TEST(HandOverModel, WhatIsPutIsTakenOnceEach) {
  ExpectNoError<Handing<2>>(3);
  ExpectNoError<Handing<3>>(2);
}

TEST(HandOverModel, APlantedErrorIsFound) {
  const std::string file = "sync/wait_word.h";
  ExpectErrorWhere<Handing<2>>(file, rl::mo_seq_cst, rl::mo_acquire, 3);
  ExpectErrorWhere<Handing<3>>(file, rl::mo_seq_cst, rl::mo_acquire, 2);
}

struct Value {
  Plain<int> number;
};

// All set it, at once.
template <int kThreads>
struct Setting : rl::test_suite<Setting<kThreads>, kThreads> {
  SetOnce<Value> value;
  sync::atomic<int> first{-1};

  void thread(unsigned index) {
    const int number = static_cast<int>(index);
    if (const Value* early = value.get()) RL_ASSERT(early->number != number);
    if (value.Set({number})) {
      RL_ASSERT(first.exchange(number, sync::memory_order_relaxed) == -1);
    }
    RL_ASSERT(value.get() != nullptr);
    seen[index] = value.get()->number;
  }
  void after() {
    for (const auto& s : seen) {
      RL_ASSERT(s == first.load(sync::memory_order_relaxed));
    }
  }
  Plain<int> seen[kThreads];
};

TEST(SetOnceModel, TheFirstValueStaysAndIsSeenWhole) {
  ExpectNoError<Setting<2>>(4);
  ExpectNoError<Setting<3>>(3);
}

TEST(SetOnceModel, APlantedErrorIsFound) {
  const std::string file = "sync/set_once.h";
  ExpectErrorWhere<Setting<2>>(file, rl::mo_acquire, rl::mo_relaxed, 4);
  ExpectErrorWhere<Setting<3>>(file, rl::mo_release, rl::mo_relaxed, 3);
}

// A rank brings something to its rounds, and leaves; the others look whether
// it has left, and if so, whether it has arrived.
template <int kThreads>
struct Leaving : rl::test_suite<Leaving<kThreads>, kThreads> {
  static constexpr int kRounds = 2;
  Plain<int> brought[kRounds];
  Milestone arrived[kRounds];
  Milestone has_left;

  void thread(unsigned index) {
    if (index == 0) return Arrive();
    for (int look = 0; look < 2; ++look) {
      const bool is_gone = has_left.is_passed();
      for (int i = 0; i < kRounds; ++i) {
        const bool has_arrived = arrived[i].is_passed(i + 1);
        if (has_arrived) RL_ASSERT(brought[i] == i + 1);
        if (is_gone) RL_ASSERT(has_arrived);
      }
    }
  }
  void Arrive() {
    for (int i = 0; i < kRounds; ++i) {
      brought[i] = i + 1;
      arrived[i].Pass(i + 1);
    }
    has_left.Pass();
  }
};

TEST(MilestoneModel, WhoHasArrivedAndLeftIsNeverSeenAsMissing) {
  ExpectNoError<Leaving<2>>(4);
  ExpectNoError<Leaving<3>>(3);
}

TEST(MilestoneModel, APlantedErrorIsFound) {
  const std::string file = "sync/milestone.h";
  ExpectErrorWhere<Leaving<2>>(file, rl::mo_acquire, rl::mo_relaxed, 4);
  ExpectErrorWhere<Leaving<3>>(file, rl::mo_release, rl::mo_relaxed, 3);
}

}  // namespace
}  // namespace collectives
