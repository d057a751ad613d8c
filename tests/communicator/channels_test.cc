// Channels made by Duplicate, second callers, and how long things live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using ::testing::HasSubstr;

int64_t SumOn(Communicator& comm, int64_t value, const std::string& label) {
  comm.AllReduce({&value, DType::kI64, 1}, ReduceOp::kSum, label);
  return value;
}

TEST(DuplicateTest, ChannelsNeedNoCommonOrder) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    EXPECT_EQ(second->rank(), comm.rank());
    EXPECT_EQ(second->ranks(), comm.ranks());
    EXPECT_EQ(second->channel(), "second");
    for (int i = 0; i < 200; ++i) {
      int64_t a = comm.rank() + i;
      int64_t b = 100 * comm.rank();
      std::vector<Work> works;
      const auto start = [&](Communicator& on, int64_t& value) {
        works.push_back(on.StartAllReduce({&value, DType::kI64, 1},
                                          ReduceOp::kSum, on.channel()));
      };
      if ((comm.rank() + i) % 2 == 0) {
        start(comm, a);
        start(*second, b);
      } else {
        start(*second, b);
        start(comm, a);
      }
      for (Work& work : works) work.Wait();
      EXPECT_EQ(a, 6 + 4 * i);
      EXPECT_EQ(b, 600);
    }
  });
}

TEST(DuplicateTest, ADuplicateHasItsOwnNumbersAndDuplicates) {
  const auto recorders = RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    SumOn(comm, 1, "0");
    const auto second = comm.Duplicate("second");
    const auto third = second->Duplicate("third");
    EXPECT_EQ(SumOn(*third, comm.rank(), "x"), 3);
    EXPECT_EQ(SumOn(*second, 1, "y"), 3);
    EXPECT_EQ(SumOn(comm, 2, "z"), 6);
  });
  std::vector<std::string> seen;
  for (const Record& r : recorders[1].Records()) {
    seen.push_back(r.channel + " " + std::to_string(r.sequence) + " " +
                   r.label);
  }
  EXPECT_THAT(
      seen, testing::ElementsAre("main 0 0", "main 1 second", "second 0 third",
                                 "third 0 x", "second 1 y", "main 2 z"));
}

TEST(DuplicateTest, NamesThatDifferAreAMismatch) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const auto duplicate = [&] {
      return comm.Duplicate(comm.rank() == 0 ? "a" : "b");
    };
    EXPECT_THROW(duplicate(), MismatchError);
    const auto second = comm.Duplicate("same");
    EXPECT_EQ(SumOn(*second, 1, "x"), 2);
  });
}

TEST(DuplicateTest, OutlivesTheChannelItCameFrom) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    std::unique_ptr<Communicator> last = comm.Duplicate("0");
    for (int i = 1; i < 50; ++i) last = last->Duplicate(std::to_string(i));
    EXPECT_EQ(SumOn(*last, comm.rank(), "x"), 3);
  });
}

TEST(InvalidCallTest, IsRefusedBeforeAnythingIsPosted) {
  const auto recorders = RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    std::vector<int32_t> x(4, 1);
    const Buffer buffer = AsBuffer(std::span(x));
    if (comm.rank() == 0) {  // one rank's mistake is its own
      EXPECT_THROW(comm.AllReduce(buffer, ReduceOp::kAverage, "x"),
                   InvalidArgument);
      EXPECT_THROW(comm.Broadcast(buffer, 2, "x"), InvalidArgument);
      EXPECT_THROW(comm.AllGather(buffer, buffer, {4, 4}, "x"),
                   InvalidArgument);
      EXPECT_THROW(comm.ReduceScatter(buffer, {nullptr, DType::kF32, 2}, {2, 2},
                                      ReduceOp::kSum, "x"),
                   InvalidArgument);
    }
    comm.AllReduce(buffer, ReduceOp::kSum, "x");
    EXPECT_EQ(x, std::vector<int32_t>(4, 2));
  });
  EXPECT_EQ(recorders[0].Records().size(), 1U);
}

TEST(WorkTest, DroppedItWaitsUntilItsBufferIsFree) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    std::vector<float> x(1 << 20);
    for (int i = 0; i < 20; ++i) {
      for (size_t j = 0; j < x.size(); j += 1000) x[j] = static_cast<float>(i);
      comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
      for (size_t j = 0; j < x.size(); j += 1000) {
        ASSERT_EQ(x[j], static_cast<float>(4 * i));
      }
    }
  });
}

TEST(WorkTest, MovedOverAnotherItWaitsForThatOne) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    int64_t a = 1;
    int64_t b = 2;
    Work work = comm.StartAllReduce({&a, DType::kI64, 1}, ReduceOp::kSum, "a");
    work = comm.StartAllReduce({&b, DType::kI64, 1}, ReduceOp::kSum, "b");
    EXPECT_EQ(a, 3);
    const Work moved = std::move(work);
    EXPECT_TRUE(work.IsDone());  // NOLINT: a moved-from Work is empty
  });
}

TEST(WorkTest, OutlivesItsChannelAndTheRun) {
  std::vector<Work> left(2);
  std::vector<int64_t> x = {1, 2};
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank());
    const auto second = comm.Duplicate("second");
    left[r] =
        second->StartAllReduce({&x[r], DType::kI64, 1}, ReduceOp::kSum, "late");
  });
  for (Work& work : left) work.Wait();
  EXPECT_EQ(x, (std::vector<int64_t>{3, 3}));
}

TEST(WorkTest, ThatNobodyMatchedFailsOnceTheRunIsOver) {
  Work left;
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    if (comm.rank() == 0) left = comm.StartBarrier("alone");
  });
  EXPECT_THROW(left.Wait(), PeerFailed);
}

}  // namespace
}  // namespace collectives
