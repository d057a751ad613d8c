// Collectives complete while nobody waits, and what is to run then does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "collectives/errors.h"
#include "collectives/recomputing.h"
#include "collectives/record/clock.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kDeadlineNs = 60'000'000'000;

// Some microseconds of arithmetic outside the Communicator.
float Compute() {
  volatile float x = 1;
  for (int i = 0; i < 5000; ++i) x = x * 1.0001F + 0.5F;
  return x;
}

bool ComputeUntilDone(const Work& work) {
  const int64_t deadline_ns = NowNs() + kDeadlineNs;
  while (!work.IsDone()) {
    Compute();
    if (NowNs() > deadline_ns) return false;
  }
  return true;
}

class ProgressTest : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(ProgressTest, APostedCollectiveCompletesWhileEveryRankComputes) {
  const auto [ranks, bytes] = GetParam();
  const auto elems = static_cast<size_t>(bytes / 4);
  const auto recorders =
      RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
        std::vector<int32_t> x(elems);
        for (size_t i = 0; i < elems; ++i) {
          x[i] = static_cast<int32_t>(i) * (comm.rank() + 1);
        }
        Work work = comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum,
                                        "while computing");
        EXPECT_TRUE(ComputeUntilDone(work));
        work.Wait();
        const int factor = comm.ranks() * (comm.ranks() + 1) / 2;
        for (size_t i = 0; i < elems; ++i) {
          ASSERT_EQ(x[i], static_cast<int32_t>(i) * factor);
        }
      });
  for (const Recorder& recorder : recorders) {
    const Record record = recorder.Records().at(0);
    EXPECT_TRUE(record.is_async);
    EXPECT_EQ(record.state, RecordState::kDone);
    EXPECT_LT(record.done_ns, record.wait_began_ns);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ProgressTest,
    testing::Combine(testing::Values(1, 2, 4),
                     testing::Values(4, 64 << 10, 16 << 20)),
    [](const auto& info) {
      return "ranks" + std::to_string(std::get<0>(info.param)) + "_bytes" +
             std::to_string(std::get<1>(info.param));
    });

TEST(ProgressTest, ThousandsMayBeInFlightAndBeWaitedForInReverse) {
  constexpr int kWorks = 3000;
  std::latch has_posted_all(1);
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    if (comm.rank() != 0) has_posted_all.wait();  // rank 0 runs far ahead
    std::vector<int32_t> x(kWorks);
    std::vector<Work> works;
    std::vector<int> order;
    for (int i = 0; i < kWorks; ++i) {
      x[static_cast<size_t>(i)] = i + comm.rank();
      works.push_back(comm.StartAllReduce(
          AsBuffer(std::span(x).subspan(static_cast<size_t>(i), 1)),
          ReduceOp::kSum, std::to_string(i)));
      works.back().OnDone([&order, i] { order.push_back(i); });
    }
    if (comm.rank() == 0) {
      EXPECT_FALSE(works[0].IsDone());
      has_posted_all.count_down();
    }
    for (int i = kWorks; i-- > 0;) works[static_cast<size_t>(i)].Wait();
    for (int i = 0; i < kWorks; ++i) {
      ASSERT_EQ(x[static_cast<size_t>(i)], 3 * i + 3);
      ASSERT_EQ(order.at(static_cast<size_t>(i)), i);
    }
    EXPECT_EQ(order.size(), static_cast<size_t>(kWorks));
  });
}

// The first is large, the rest small and done before it.
TEST(ContinuationTest, RunInOrderOnTheRanksOwnThreadExactlyOnce) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    std::vector<float> large(1 << 20, 1);
    std::vector<float> small(8, 1);
    const auto self = std::this_thread::get_id();
    std::vector<int> order;
    std::vector<Work> works;
    works.push_back(
        comm.StartAllReduce(AsBuffer(std::span(large)), ReduceOp::kMax, "0"));
    for (int i = 1; i < 8; ++i) {
      works.push_back(comm.StartAllReduce(
          AsBuffer(std::span(small).subspan(static_cast<size_t>(i), 1)),
          ReduceOp::kMax, std::to_string(i)));
    }
    for (int i : {3, 0, 1, 2, 7, 6, 5, 4}) {
      works[static_cast<size_t>(i)].OnDone([&order, self, i] {
        EXPECT_EQ(std::this_thread::get_id(), self);
        order.push_back(i);
      });
    }
    works[5].Wait();  // runs its own, and so all before it
    EXPECT_GE(order.size(), 6U);
    for (Work& work : works) work.Wait();
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  });
}

// On rank 0 it runs at a call of a second run, on the others before.
TEST(ContinuationTest, AreNoPartOfASecondRunThatTheyRunIn) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    int value = comm.rank();
    Work posted;
    Work first = comm.StartBarrier("first");
    first.OnDone([&] {
      EXPECT_FALSE(IsRecomputing());
      posted = second->StartBroadcast(AsBuffer(std::span(&value, 1)), 2, "x");
    });
    if (comm.rank() != 0) first.Wait();
    while (!first.IsDone()) std::this_thread::yield();
    {
      const RecomputingScope again;
      comm.Barrier("of the segment");
      EXPECT_TRUE(IsRecomputing());
    }
    posted.Wait();
    EXPECT_EQ(value, 2);
  });
}

TEST(ContinuationTest, NeverRunInsideOneAnotherThoughTheyPostAndWait) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    std::vector<int> x = {1, 1};
    int depth = 0;
    std::vector<int> order;
    Work first = comm.StartBarrier("first");
    Work next = comm.StartBarrier("next");
    Work third;
    first.OnDone([&] {
      EXPECT_EQ(++depth, 1);
      order.push_back(1);
      second->AllReduce(AsBuffer(std::span(x).first(1)), ReduceOp::kSum, "a");
      third = second->StartAllReduce(AsBuffer(std::span(x).subspan(1)),
                                     ReduceOp::kSum, "b");
      third.OnDone([&] { order.push_back(3); });
      third.Wait();
      next.Wait();
      --depth;
    });
    next.OnDone([&] {
      EXPECT_EQ(++depth, 1);
      order.push_back(2);
      --depth;
    });
    first.Wait();
    comm.Barrier("end");
    EXPECT_THAT(order, testing::UnorderedElementsAre(1, 2, 3));
    EXPECT_EQ(order[0], 1);
    EXPECT_THAT(x, ElementsAre(3, 3));
  });
}

TEST(ContinuationTest, AChannelThatIsHeldUpDoesNotHoldUpAnother) {
  std::latch has_run(1);
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    if (comm.rank() == 1) {
      Work work = second->StartBarrier("open");
      has_run.wait();
      comm.Barrier("held up");
      return work.Wait();
    }
    std::vector<int> order;
    Work held_up = comm.StartBarrier("held up");
    held_up.OnDone([&] { order.push_back(1); });
    Work open = second->StartBarrier("open");
    open.OnDone([&] { order.push_back(2); });
    open.Wait();
    EXPECT_THAT(order, ElementsAre(2));
    has_run.count_down();
    held_up.Wait();
    EXPECT_THAT(order, ElementsAre(2, 1));
  });
}

TEST(ContinuationTest, WhatItThrowsComesOutOfTheWaitAndTheRestStillRuns) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Work first = comm.StartBarrier("first");
    Work next = comm.StartBarrier("next");
    int runs = 0;
    first.OnDone([&] {
      ++runs;
      throw std::logic_error("mine");
    });
    next.OnDone([&] { ++runs; });
    EXPECT_THROW(first.Wait(), std::logic_error);
    first.Wait();  // thrown once
    next.Wait();
    EXPECT_EQ(runs, 2);
  });
}

TEST(ContinuationTest, OfADoneOrEmptyWorkRunsAtTheNextCallOrAtOnce) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    int runs = 0;
    Work().OnDone([&] { ++runs; });
    EXPECT_EQ(runs, 1);
    Work work = comm.StartBarrier("x");
    work.Wait();
    work.OnDone([&] { ++runs; });
    EXPECT_EQ(runs, 1);
    comm.Barrier("next");
    EXPECT_EQ(runs, 2);
    comm.Barrier("last");
    EXPECT_EQ(runs, 2);
  });
}

TEST(ContinuationTest, IsForgottenWhenTheRanksFunctionReturns) {
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = alive;
  RunRanksHere({.ranks = 1}, [&](Communicator& comm) {
    // Owns the Work that it continues: a cycle.
    auto work = std::make_shared<Work>(comm.StartBarrier("x"));
    work->OnDone([work, alive] { ADD_FAILURE() << "the rank has returned"; });
  });
  alive.reset();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace collectives
