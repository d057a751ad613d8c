// Ranks that do not agree on what comes next: each learns what the others
// asked for, and no data is mixed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "collectives/recomputing.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// What `fn` throws as E; "" if nothing.
template <typename E>
std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

TEST(RecomputedCallsTest, AreRecordedAsSuchAndMatchOnlyEachOther) {
  const auto recorders = RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    comm.Barrier("x");
    {
      const RecomputingScope recomputing;
      comm.Barrier("x");
    }
    const auto again = [&] { comm.Barrier("x"); };
    EXPECT_THAT(ErrorOf<MismatchError>([&] {
                  if (comm.rank() == 0) return again();
                  const RecomputingScope recomputing;
                  again();
                }),
                AllOf(HasSubstr("differ in recomputation: "),
                      HasSubstr("[rank 0: barrier 'x']"),
                      HasSubstr("[rank 1: barrier 'x' (recomputed)]")));
  });
  for (const Recorder& recorder : recorders) {
    EXPECT_FALSE(recorder.Records()[0].is_recomputed);
    EXPECT_TRUE(recorder.Records()[1].is_recomputed);
  }
}

TEST(MismatchTextTest, NamesOnlyTheFactThatDiffersThoughTheBytesAreTheSame) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const bool is_odd = comm.rank() == 1;
    std::vector<float> x(30, 1);
    const std::vector<float> before = x;
    const std::vector<int64_t> counts = is_odd
                                            ? std::vector<int64_t>{10, 20, 0}
                                            : std::vector<int64_t>{20, 10, 0};
    const auto mine = std::span(x).first(
        static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]));
    EXPECT_THAT(ErrorOf<MismatchError>([&] {
                  std::vector<float> part(mine.size());
                  comm.ReduceScatter(AsBuffer(std::span(x)),
                                     AsBuffer(std::span(part)), counts,
                                     ReduceOp::kSum, "x");
                }),
                AllOf(HasSubstr("differ in counts: "),
                      HasSubstr("[rank 0 2: reduce-scatter sum f32 x 30 "
                                "(20+10+0) 'x']"),
                      HasSubstr("[rank 1: reduce-scatter sum f32 x 30 "
                                "(10+20+0) 'x']")));
    const DType dtype = is_odd ? DType::kI32 : DType::kF32;
    EXPECT_THAT(ErrorOf<MismatchError>([&] {
                  comm.Broadcast({x.data(), dtype, 30}, 0, "y");
                }),
                AllOf(HasSubstr("differ in dtype: "),
                      HasSubstr("broadcast f32 x 30 from rank 0 'y'"),
                      HasSubstr("broadcast i32 x 30 from rank 0 'y'")));
    EXPECT_EQ(x, before);
  });
}

TEST(MismatchTextTest, HoldsLabelsOfAnyLength) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const std::string label =
        "rank " + std::to_string(comm.rank()) +
        std::string(static_cast<size_t>(20'000 * comm.rank()), 'x') + " end";
    const std::string error =
        ErrorOf<MismatchError>([&] { comm.Barrier(label); });
    EXPECT_THAT(error, AllOf(HasSubstr("differ in label"),
                             HasSubstr("'rank 0 end'"), HasSubstr("'rank 1xx"),
                             HasSubstr("'rank 2xx"), HasSubstr("xx end'")));
    EXPECT_GT(error.size(), 60'000U);
    comm.Barrier("after");
  });
}

TEST(MismatchTest, TwoStreamsInAnotherOrderOnOneChannelNeverMix) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    std::vector<float> bucket(100, 1.0F + comm.rank());
    std::vector<float> own(100, 10.0F + comm.rank());
    const auto start = [&](std::vector<float>& x, const char* label) {
      return comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, label);
    };
    std::vector<Work> works;
    if (comm.rank() == 0) {
      works.push_back(start(bucket, "bucket"));
      works.push_back(start(own, "own"));
    } else {
      works.push_back(start(own, "own"));
      works.push_back(start(bucket, "bucket"));
    }
    for (Work& work : works) {
      EXPECT_THAT(ErrorOf<MismatchError>([&] { work.Wait(); }),
                  AllOf(HasSubstr("'bucket'"), HasSubstr("'own'")));
    }
    EXPECT_THAT(bucket, Each(1.0F + comm.rank()));
    EXPECT_THAT(own, Each(10.0F + comm.rank()));
  });
}

TEST(MismatchTest, CallsBeforeAndAfterItOnTheChannelAreRight) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    std::vector<std::vector<float>> x(9, std::vector<float>(2000));
    std::vector<Work> works;
    for (size_t i = 0; i < x.size(); ++i) {
      std::fill(x[i].begin(), x[i].end(), static_cast<float>(i) + comm.rank());
      const bool differs = i % 3 == 1;
      works.push_back(comm.StartAllReduce(
          AsBuffer(std::span(x[i])), ReduceOp::kSum,
          std::to_string(i) + (differs ? std::to_string(comm.rank()) : "")));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const auto number = static_cast<float>(i);
      if (i % 3 == 1) {
        EXPECT_THROW(works[i].Wait(), MismatchError);
        EXPECT_THAT(x[i], Each(number + comm.rank()));
      } else {
        works[i].Wait();
        EXPECT_THAT(x[i], Each(3 * number + 3));
      }
    }
  });
}

TEST(MismatchTest, SaysAtWhichCallAndTheRecordsOfAllRanksLineUpBeforeIt) {
  const auto recorders = RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    for (int i = 0; i < 57; ++i) comm.Barrier("call " + std::to_string(i));
    const auto odd = [&] {
      comm.Barrier(comm.rank() == 2 ? "of rank 2" : "of the others");
    };
    EXPECT_THAT(ErrorOf<MismatchError>(odd),
                AllOf(HasSubstr("channel 'main' #57"),
                      HasSubstr("[rank 0 1: barrier 'of the others']"),
                      HasSubstr("[rank 2: barrier 'of rank 2']")));
  });
  ASSERT_EQ(recorders.size(), 3U);
  for (const Recorder& recorder : recorders) {
    const auto records = recorder.Records();
    ASSERT_EQ(records.size(), 58U);
    for (size_t i = 48; i < 57; ++i) {
      EXPECT_EQ(records[i].sequence, i);
      EXPECT_EQ(records[i].label, "call " + std::to_string(i));
      EXPECT_EQ(records[i].state, RecordState::kDone);
    }
    EXPECT_EQ(records[57].state, RecordState::kFailed);
    EXPECT_EQ(records[57].label,
              recorder.rank() == 2 ? "of rank 2" : "of the others");
  }
}

TEST(ExtraCallTest, OfOneRankAtTheEndIsNamedAndEverybodyEnds) {
  try {
    RunRanksHere({.ranks = 4}, [](Communicator& comm) {
      comm.Barrier("all");
      std::vector<float> x(8, 1);
      if (comm.rank() != 3) return;
      comm.Broadcast(AsBuffer(std::span(x)), 3, "log of rank 3");
    });
    FAIL() << "nobody missed the others";
  } catch (const RankFailed& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("has left"),
                      HasSubstr("broadcast f32 x 8 from rank 3 'log of rank "
                                "3'")));
  }
}

TEST(ExtraCallTest, OfOneRankInTheMiddleIsAMismatch) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    std::vector<float> x(8, 1);
    const Buffer buffer = AsBuffer(std::span(x));
    if (comm.rank() == 3) {
      EXPECT_THAT(
          ErrorOf<MismatchError>([&] { comm.Broadcast(buffer, 3, "extra"); }),
          HasSubstr("[rank 3: broadcast f32 x 8 from rank 3 'extra']"));
      return;
    }
    EXPECT_THAT(ErrorOf<MismatchError>(
                    [&] { comm.AllReduce(buffer, ReduceOp::kSum, "step"); }),
                AllOf(HasSubstr("'extra'"), HasSubstr("[rank 0 1 2: ")));
  });
}

TEST(ChannelTimeoutTest, ADuplicateOfADuplicateHasTheTimeoutOfItsGroup) {
  std::latch has_failed(1);
  RunRanksToAFailure(
      {.ranks = 2, .timeout = milliseconds(300)}, [&](Communicator& comm) {
        const auto second = comm.Duplicate("second");
        const auto third = second->Duplicate("third");
        if (comm.rank() == 1) return has_failed.wait();
        EXPECT_THAT(ErrorOf<TimeoutError>([&] { third->Barrier("b"); }),
                    AllOf(HasSubstr("timed out after 300 ms waiting for rank 1 "
                                    "of 2"),
                          HasSubstr("channel 'third' #0, barrier 'b'")));
        has_failed.count_down();
      });
}

}  // namespace
}  // namespace collectives
