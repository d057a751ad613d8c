// Groups, channels and works from their start to their end: many at once, many
// in a row, ended early, late or by one rank alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

template <typename T>
Work StartSum(Communicator& comm, std::vector<T>& x, const char* label) {
  return comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, label);
}

// Eight collectives of one round, of every kind and size, on two channels.
class MixedRound {
 public:
  MixedRound(Communicator& comm, Communicator& second, int round)
      : rank_(comm.rank()), round_(round) {
    const Buffer none{nullptr, DType::kU8, 0};
    works_.push_back(StartSum(comm, small_, "small"));
    works_.push_back(StartSum(second, large_, "large"));
    works_.push_back(comm.StartReduceScatter(AsBuffer(std::span(scattered_)),
                                             AsBuffer(Mine()), kCounts,
                                             ReduceOp::kMax, "scatter"));
    works_.push_back(second.StartBroadcast(AsBuffer(std::span(sent_)),
                                           round % 3, "broadcast"));
    works_.push_back(comm.StartBarrier("barrier"));
    works_.push_back(comm.StartAllGather(AsBuffer(std::span(one_)),
                                         AsBuffer(std::span(gathered_)),
                                         {1, 1, 1}, "gather"));
    works_.push_back(second.StartAllReduce(none, ReduceOp::kSum, "nothing"));
    works_.push_back(second.StartAllReduce(AsBuffer(std::span(bytes_)),
                                           ReduceOp::kMin, "bytes"));
  }

  // Waits for them in an order of the rank's own.
  void WaitAndCheck() {
    for (size_t i = 0; i < works_.size(); ++i) {
      works_[(i * 3 + static_cast<size_t>(rank_ + round_)) % works_.size()]
          .Wait();
    }
    ASSERT_EQ(small_, std::vector<double>(3, 3 * round_ + 3));
    ASSERT_EQ(large_, std::vector<int64_t>(700, 3 * round_ + 3));
    ASSERT_THAT(Mine(), Each(round_ + 2));
    ASSERT_EQ(sent_, std::vector<float>(90, round_ % 3 + round_));
    ASSERT_EQ(gathered_,
              (std::vector<int32_t>{round_, round_ + 1, round_ + 2}));
    ASSERT_EQ(bytes_, std::vector<uint8_t>(5, round_ % 200));
  }

 private:
  inline static const std::vector<int64_t> kCounts = {5, 0, 95};

  std::span<float> Mine() {
    const auto elems = static_cast<size_t>(kCounts[static_cast<size_t>(rank_)]);
    return std::span(scattered_).subspan(rank_ == 2 ? 5 : 0, elems);
  }

  const int rank_;
  const int round_;
  std::vector<double> small_ = std::vector<double>(3, rank_ + round_);
  std::vector<int64_t> large_ = std::vector<int64_t>(700, rank_ + round_);
  std::vector<float> scattered_ = std::vector<float>(100, rank_ + round_);
  std::vector<float> sent_ = std::vector<float>(90, rank_ + round_);
  std::vector<int32_t> one_ = {rank_ + round_};
  std::vector<int32_t> gathered_ = {-1, -1, -1};
  std::vector<uint8_t> bytes_ =
      std::vector<uint8_t>(5, static_cast<uint8_t>(round_ % 200 + rank_));
  std::vector<Work> works_;  // ends first
};

// How often: a slow backend runs the lower numbers only.
class RepeatedTest : public testing::TestWithParam<int> {};

TEST_P(RepeatedTest, EightCollectivesOfAllKindsInFlightDoNotInterfere) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    for (int round = 0; round < 10 * GetParam(); ++round) {
      MixedRound mixed(comm, *second, round);
      mixed.WaitAndCheck();
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(InFlightTest, ManyChannelsMayBeFirstUsedAllAtOnce) {
  constexpr size_t kChannels = 8;
  for (int run = 0; run < 3; ++run) {
    RunRanksHere({.ranks = 4}, [](Communicator& comm) {
      std::vector<std::unique_ptr<Communicator>> channels;
      std::vector<std::vector<float>> x;
      for (size_t i = 0; i < kChannels; ++i) {
        channels.push_back(comm.Duplicate(std::to_string(i)));
        x.emplace_back(i % 2 == 0 ? 4 : 5000, static_cast<float>(i));
      }
      std::vector<Work> works;
      for (size_t i = 0; i < kChannels; ++i) {  // each rank in its own order
        const size_t c = (i + static_cast<size_t>(comm.rank())) % kChannels;
        works.push_back(StartSum(*channels[c], x[c], "first"));
      }
      for (Work& work : works) work.Wait();
      for (size_t i = 0; i < kChannels; ++i) {
        EXPECT_THAT(x[i], Each(4 * static_cast<float>(i)));
      }
    });
  }
}

TEST(InFlightTest, WhatIsPostedWhenTheFunctionReturnsIsCompleted) {
  std::vector<std::vector<float>> x(3 * 8);
  RunRanksHere({.ranks = 3}, [&x](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    std::vector<Work> works;
    for (size_t i = 0; i < 8; ++i) {
      std::vector<float>& mine = x[8 * static_cast<size_t>(comm.rank()) + i];
      mine.assign(i % 2 == 0 ? 10 : 100'000, 1.0F + comm.rank());
      works.push_back(StartSum(i < 4 ? comm : *second, mine, "left"));
    }
  });
  for (const auto& values : x) EXPECT_THAT(values, Each(6));
}

TEST(InFlightTest, ARankMayDropWhatItSentAndLeaveBeforeTheOthersLook) {
  std::latch has_left(1);
  RunRanksHere({.ranks = 3}, [&has_left](Communicator& comm) {
    std::vector<float> x(100'000, static_cast<float>(comm.rank()));
    const struct Leaves {
      std::latch& latch;
      bool counts;
      ~Leaves() { latch.count_down(counts); }
    } leaves{has_left, comm.rank() == 0};
    Work work = comm.StartBroadcast(AsBuffer(std::span(x)), 0, "last words");
    if (comm.rank() == 0) return;
    has_left.wait();
    work.Wait();
    EXPECT_THAT(x, Each(0));
  });
}

TEST(EndTest, ARankThatThrowsEndsItsChannelsAndTheOthersKnowWhy) {
  std::atomic<int> told{0};
  const auto fn = [&told](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    const auto third = second->Duplicate("third");
    if (comm.rank() == 0) throw Boom();  // destroys both while it unwinds
    try {
      for (;;) second->Barrier("on");
    } catch (const PeerFailed& e) {
      EXPECT_EQ(e.rank(), 0);
      EXPECT_THAT(e.what(), HasSubstr("boom"));
      ++told;
      throw;
    }
  };
  try {
    RunRanksHere({.ranks = 3}, fn);
    FAIL();
  } catch (const RankFailed& e) {
    EXPECT_EQ(e.rank(), 0);
    EXPECT_THAT(e.what(), HasSubstr("boom"));
  }
  EXPECT_EQ(told, 2);
}

TEST(EndTest, AChannelThatOnlyOneRankEndsIsAnErrorToTheOthers) {
  std::latch have_failed(2);
  RunRanksToAFailure(
      {.ranks = 3, .timeout = milliseconds(500)}, [&](Communicator& comm) {
        auto second = comm.Duplicate("second");
        second->Barrier("all");
        if (comm.rank() == 0) {
          second.reset();  // returns though nobody else does it
          return have_failed.wait();
        }
        try {
          second->Barrier("two only");
          ADD_FAILURE() << "nobody missed rank 0";
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), AnyOf(HasSubstr("rank 0 has left"),
                                      HasSubstr("waiting for rank 0 of 3")));
          EXPECT_THAT(e.what(), HasSubstr("'second' #1, barrier 'two only'"));
        }
        have_failed.count_down();
      });
}

TEST(EndTest, OthersEndTheirChannelsInAnyOrderThoughARankIsStuck) {
  std::latch have_ended(2);
  RunRanksToAFailure(
      {.ranks = 3, .timeout = milliseconds(500)}, [&](Communicator& comm) {
        std::vector<std::unique_ptr<Communicator>> channels;
        for (int i = 0; i < 4; ++i) {
          channels.push_back(comm.Duplicate(std::to_string(i)));
        }
        if (comm.rank() == 1) return have_ended.wait();
        EXPECT_THROW(channels[2]->Barrier("b"), TimeoutError);
        std::swap(channels[0], channels[comm.rank() == 0 ? 1 : 3]);
        channels.clear();
        have_ended.count_down();
      });
}

TEST(EndTest, WhenOneOfTwoTimesOutTheOtherReturnsTooAndTheNextAtOnce) {
  std::latch has_failed(1);
  RunRanksToAFailure({.ranks = 2, .timeout = milliseconds(500)},
                     [&](Communicator& comm) {
                       const auto second = comm.Duplicate("second");
                       std::vector<float> x(400'000, 1);
                       Work running = StartSum(comm, x, "running");
                       if (comm.rank() == 1) {
                         running.Wait();
                         return has_failed.wait();
                       }
                       EXPECT_THROW(second->Barrier("never"), TimeoutError);
                       running.Wait();
                       EXPECT_THAT(x, Each(2));
                       if (!GroupsOutliveFailures()) {
                         const auto began = std::chrono::steady_clock::now();
                         EXPECT_THROW(comm.Barrier("next"), Error);
                         EXPECT_THROW(second->Barrier("next"), Error);
                         EXPECT_LT(std::chrono::steady_clock::now() - began,
                                   std::chrono::seconds(5));
                       }
                       has_failed.count_down();
                     });
}

void Sum(int ranks, int turns) {
  RunRanksHere({.ranks = ranks}, [=](Communicator& comm) {
    for (int i = 0; i < turns; ++i) {
      std::vector<int64_t> x(i % 2 == 0 ? 1 : 1000, comm.rank() + i);
      comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
      EXPECT_THAT(x, Each(ranks * i + ranks * (ranks - 1) / 2));
    }
  });
}

TEST(GroupsTest, EightAreMadeUsedAndEndedAtOnceByEightThreads) {
  for (int run = 0; run < 3; ++run) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([i] { Sum(1 + i % 3, 5); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Whatever delays a rank, be it before its first call or between two.
TEST(GroupsTest, RanksMayStartInAnyOrder) {
  std::mt19937 random(1);
  for (int run = 0; run < 10; ++run) {
    std::vector<milliseconds> delays;
    for (int r = 0; r < 4; ++r) delays.emplace_back(random() % 50);
    RunRanksHere({.ranks = 4}, [&delays](Communicator& comm) {
      std::this_thread::sleep_for(delays[static_cast<size_t>(comm.rank())]);
      int64_t x = comm.rank();
      comm.AllReduce({&x, DType::kI64, 1}, ReduceOp::kSum, "x");
      EXPECT_EQ(x, 6);
    });
  }
}

// One of the ranks throws, or leaves early.
void Fail(int ranks, bool throws) {
  EXPECT_THROW(RunRanksHere({.ranks = ranks},
                            [=](Communicator& comm) {
                              const auto second = comm.Duplicate("second");
                              second->Barrier("all");
                              if (comm.rank() == ranks - 1) {
                                if (throws) throw Boom();
                                return;
                              }
                              comm.Barrier("not all");
                            }),
               RankFailed);
}

TEST_P(RepeatedTest, GroupsInARowSomeFailingLeaveNoTraceInTheNext) {
  for (int run = 0; run < GetParam(); ++run) {
    const int ranks = 1 + run % 5;
    if (ranks > 1 && run % 4 == 1) {
      Fail(ranks, run % 8 == 1);
    } else {
      Sum(ranks, 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Times, RepeatedTest, testing::Values(15, 100),
                         testing::PrintToStringParamName());

// Each of two threads waits for a Work of the same rank: the second is
// refused, whichever that is, and only then do the peers come.
TEST(SecondCallerTest, IsRefusedWhileTheFirstWaitsAndDisturbsNothing) {
  std::latch is_refused(1);
  RunRanksHere({.ranks = 2}, [&is_refused](Communicator& comm) {
    std::vector<float> a(1000, 1);
    std::vector<float> b(1000, 2);
    if (comm.rank() == 1) is_refused.wait();
    Work first = StartSum(comm, a, "a");
    Work next = StartSum(comm, b, "b");
    if (comm.rank() == 0) {
      std::atomic<int> refusals{0};
      const auto wait = [&](Work& work) {
        try {
          work.Wait();
        } catch (const InvalidArgument& e) {
          EXPECT_THAT(e.what(), HasSubstr("two threads use"));
          ++refusals;
          is_refused.count_down();
        }
      };
      std::thread other([&] { wait(next); });
      wait(first);
      other.join();
      EXPECT_EQ(refusals, 1);
    }
    first.Wait();
    next.Wait();
    EXPECT_THAT(a, Each(2));
    EXPECT_THAT(b, Each(4));
  });
}

}  // namespace
}  // namespace collectives
