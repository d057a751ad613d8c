// Starting ranks, and what their records say.
#include "collectives/shm/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/errors.h"
#include "collectives/record/clock.h"

namespace collectives {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const RunRanksOptions& options) {
  try {
    RunRanks(options, [](Communicator&) { ADD_FAILURE() << "was run"; });
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(RunRanksTest, RefusesImpossibleOptionsBeforeItStartsAnything) {
  for (int ranks : {0, -1, kMaxRanks + 1, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(ErrorOf({.ranks = ranks}),
                HasSubstr("ranks is " + std::to_string(ranks) +
                          ", expected 1 to 1024"));
  }
  for (int timeout : {0, -5}) {
    EXPECT_THAT(
        ErrorOf({.ranks = 2, .timeout = std::chrono::nanoseconds(timeout)}),
        HasSubstr("timeout is 0 or negative"));
  }
  EXPECT_THROW(RunRanks({.ranks = 2}, nullptr), InvalidArgument);
}

TEST(RunRanksTest, RunsEachRankOnceOnAThreadOfItsOwn) {
  std::mutex mutex;
  std::multiset<int> ranks;
  std::set<std::thread::id> threads = {std::this_thread::get_id()};
  const auto recorders = RunRanks({.ranks = 5}, [&](Communicator& comm) {
    EXPECT_EQ(comm.ranks(), 5);
    EXPECT_EQ(comm.channel(), "main");
    const std::lock_guard lock(mutex);
    ranks.insert(comm.rank());
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ranks, (std::multiset<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads.size(), 6U);
  ASSERT_EQ(recorders.size(), 5U);
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(recorders[static_cast<size_t>(r)].rank(), r);
  }
}

void Sum(int ranks, int turns) {
  RunRanks({.ranks = ranks}, [=](Communicator& comm) {
    for (int i = 0; i < turns; ++i) {
      std::vector<int64_t> x(1000);
      for (size_t j = 0; j < x.size(); ++j) {
        x[j] = static_cast<int64_t>(j) + comm.rank() + i;
      }
      comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
      for (size_t j = 0; j < x.size(); ++j) {
        ASSERT_EQ(x[j], ranks * (static_cast<int64_t>(j) + i) +
                            ranks * (ranks - 1) / 2);
      }
    }
  });
}

TEST(RunRanksTest, TwoRunsAtOnceDoNotDisturbEachOther) {
  std::thread other([] { Sum(3, 300); });
  Sum(4, 300);
  other.join();
}

TEST(RunRanksTest, ARunInsideARankWorks) {
  RunRanks({.ranks = 2}, [](Communicator& comm) {
    Sum(2 + comm.rank(), 5);
    comm.Barrier("after");
  });
}

TEST(RunRanksTest, HundredsOfShortRunsInARow) {
  for (int run = 0; run < 300; ++run) Sum(1 + run % 8, 1);
}

class ManyRanksTest : public testing::TestWithParam<int> {};

TEST_P(ManyRanksTest, ReduceAndMeet) {
  RunRanks({.ranks = GetParam()}, [](Communicator& comm) {
    const int64_t n = comm.ranks();
    comm.Barrier("all");
    std::vector<int32_t> x(1024);  // 4 KiB
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<int32_t>(i) + comm.rank();
    }
    comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "4 KiB");
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], n * static_cast<int64_t>(i) + n * (n - 1) / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ManyRanksTest, testing::Values(64, kMaxRanks),
                         [](const auto& info) {
                           return "ranks" + std::to_string(info.param);
                         });

void CallEverything(Communicator& comm) {
  std::vector<float> x(12, 1);
  std::vector<float> part(6, 1);
  const std::vector<int64_t> counts = {1, 2, 3, 6};
  const auto mine =
      std::span(part).first(static_cast<size_t>(counts[comm.rank()]));
  comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kAverage, "ar");
  comm.StartReduceScatter(AsBuffer(std::span(x)), AsBuffer(mine), counts,
                          ReduceOp::kMax, "rs");
  comm.AllGather(AsBuffer(mine), AsBuffer(std::span(x)), counts, "ag");
  comm.StartBroadcast(AsBuffer(std::span(x)), 2, "bc").Wait();
  comm.Barrier("b");
  comm.Duplicate("second");
}

void ExpectTimesInOrder(const Record& r) {
  EXPECT_LT(0, r.posted_ns);
  EXPECT_LE(r.posted_ns, r.matched_ns);
  EXPECT_LE(r.matched_ns, r.done_ns);
  EXPECT_LE(r.done_ns, r.wait_ended_ns);
  EXPECT_LE(r.posted_ns, r.wait_began_ns);
  EXPECT_LE(r.wait_began_ns, r.wait_ended_ns);
  EXPECT_EQ(r.WaitedForPeersNs() + r.WaitedForDataNs(),
            r.wait_ended_ns - r.wait_began_ns);
}

TEST(RecordsTest, EveryFieldOfEveryOperation) {
  const auto recorders = RunRanks({.ranks = 4}, CallEverything);
  struct Expected {
    Operation operation;
    const char* label;
    bool is_async;
    int64_t elems, bytes, sent_bytes;
  };
  const Expected expected[] = {
      {Operation::kAllReduce, "ar", false, 12, 48, 72},  // 2 x 48 x 3/4
      {Operation::kReduceScatter, "rs", true, 12, 48, 36},
      {Operation::kAllGather, "ag", false, 12, 48, 36},
      {Operation::kBroadcast, "bc", true, 12, 48, 36},
      {Operation::kBarrier, "b", false, 0, 0, 0},
      {Operation::kDuplicate, "second", false, 0, 0, 0},
  };
  for (int rank = 0; rank < 4; ++rank) {
    const auto records = recorders[static_cast<size_t>(rank)].Records();
    ASSERT_EQ(records.size(), std::size(expected));
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& r = records[i];
      const Expected& e = expected[i];
      EXPECT_EQ(r.rank, rank);
      EXPECT_EQ(r.channel, "main");
      EXPECT_EQ(r.sequence, i);
      EXPECT_EQ(r.operation, e.operation);
      EXPECT_EQ(r.label, e.label);
      EXPECT_EQ(r.is_async, e.is_async) << r.label;
      EXPECT_EQ(r.elems, e.elems) << r.label;
      EXPECT_EQ(r.bytes, e.bytes) << r.label;
      EXPECT_EQ(r.sent_bytes, e.sent_bytes) << r.label;
      EXPECT_EQ(r.state, RecordState::kDone);
      EXPECT_EQ(r.dtype, e.elems > 0 ? DType::kF32 : DType::kU8);
      ExpectTimesInOrder(r);
    }
    EXPECT_EQ(records[0].reduce_op, ReduceOp::kAverage);
    EXPECT_EQ(records[1].reduce_op, ReduceOp::kMax);
  }
}

TEST(RecordsTest, ARoundIsMatchedForAllRanksWhenTheLastHasCome) {
  const auto recorders = RunRanks({.ranks = 4}, CallEverything);
  for (size_t i = 0; i < recorders[0].Records().size(); ++i) {
    int64_t last_posted_ns = 0;
    for (const Recorder& recorder : recorders) {
      last_posted_ns =
          std::max(last_posted_ns, recorder.Records()[i].posted_ns);
    }
    for (const Recorder& recorder : recorders) {
      const Record r = recorder.Records()[i];
      EXPECT_EQ(r.matched_ns, recorders[0].Records()[i].matched_ns);
      EXPECT_EQ(r.done_ns, recorders[0].Records()[i].done_ns);
      EXPECT_GE(r.matched_ns, last_posted_ns);
    }
  }
}

TEST(RecordsTest, AFullRingCountsWhatItLostAndTheCallsStillWork) {
  const auto recorders =
      RunRanks({.ranks = 2, .record_capacity = 3}, [](Communicator& comm) {
        std::vector<Work> works;
        for (int i = 0; i < 10; ++i) {
          works.push_back(comm.StartBarrier(std::to_string(i)));
        }
      });
  for (const Recorder& recorder : recorders) {
    EXPECT_EQ(recorder.lost(), 7U);
    ASSERT_EQ(recorder.Records().size(), 3U);
    EXPECT_EQ(recorder.Records()[0].label, "7");
    EXPECT_EQ(recorder.Records()[2].state, RecordState::kDone);
  }
}

TEST(RecordsTest, PhasesOfARankLieBesideItsCollectives) {
  const auto recorders = RunRanks({.ranks = 2}, [](Communicator& comm) {
    const PhaseScope phase(comm.recorder(), "backward", 3);
    comm.Barrier("b");
  });
  for (const Recorder& recorder : recorders) {
    ASSERT_EQ(recorder.Phases().size(), 1U);
    const PhaseRecord phase = recorder.Phases()[0];
    EXPECT_EQ(phase.name, "backward");
    EXPECT_EQ(phase.step, 3);
    EXPECT_LE(phase.begin_ns, recorder.Records()[0].posted_ns);
    EXPECT_GE(phase.end_ns, recorder.Records()[0].wait_ended_ns);
  }
}

}  // namespace
}  // namespace collectives
