// One rank from its start to its end: what it waits for, and what it leaves.
#include "collectives/c10d/run_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c10d/process_runner.h"
#include "collectives/errors.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(LeavingTest, ARankThatComputesOnIsWaitedForLongerThanACollective) {
  const auto recorders = GlooThreadRunner().Run(
      {.ranks = 2, .timeout = milliseconds(200)}, [](Communicator& comm) {
        comm.Barrier("last");
        // Longer than the timeout: nothing but time can show it.
        if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
      });
  EXPECT_EQ(recorders.size(), 2U);
}

TEST(LeavingTest, AChannelThatOneRankHasDroppedHoldsUpNobody) {
  GlooThreadRunner().Run({.ranks = 2, .timeout = milliseconds(300)},
                         [](Communicator& comm) {
                           auto second = comm.Duplicate("second");
                           if (comm.rank() == 1) second.reset();
                           for (int i = 0; i < 5; ++i) {
                             std::this_thread::sleep_for(milliseconds(100));
                             comm.Barrier("on");
                           }
                         });
}

TEST(LeavingTest, ACallAfterTheRunFailsAtOnce) {
  std::unique_ptr<Communicator> kept;
  GlooThreadRunner().Run({.ranks = 2}, [&kept](Communicator& comm) {
    auto second = comm.Duplicate("second");
    if (comm.rank() == 0) kept = std::move(second);
  });
  EXPECT_THROW(kept->Barrier("late"), PeerFailed);
}

// Whether it had matched when the other channel was given up, is chance.
TEST(WithdrawalTest, OnOneChannelNeverTearsTheDataOfAnother) {
  for (int run = 0; run < 4; ++run) {
    const auto fn = [](Communicator& comm) {
      const auto second = comm.Duplicate("second");
      std::vector<float> x(4 << 20, 1.0F + static_cast<float>(comm.rank()));
      const float before = x[0];
      Work big =
          second->StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "big");
      try {
        if (comm.rank() == 0) {
          const Work withdrawn = comm.StartBarrier("withdrawn");
          throw std::runtime_error("boom");
        }
      } catch (const std::runtime_error&) {
      }
      float expected = 3;
      try {
        big.Wait();
      } catch (const Error&) {
        expected = before;
      }
      EXPECT_EQ(std::count(x.begin(), x.end(), expected),
                static_cast<int64_t>(x.size()));
    };
    EXPECT_THROW(GlooThreadRunner().Run({.ranks = 2}, fn), RankFailed);
  }
}

std::string NewPath(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string ErrorOf(ProcessRunner& runner, const RankFunction& fn) {
  try {
    runner.Run({.ranks = 1}, fn);
  } catch (const RankFailed& e) {
    return e.what();
  }
  return "";
}

TEST(ProcessRunnerTest, WhateverTheFunctionThrowsIsARankThatFailed) {
  ProcessRunner runner(World{}, {}, Store::InFile(NewPath("store"), 1));
  EXPECT_THAT(
      ErrorOf(runner,
              [](Communicator&) { throw InvalidArgument("bad shape"); }),
      HasSubstr("rank 0: bad shape"));
  EXPECT_THAT(ErrorOf(runner, [](Communicator&) { throw 42; }),
              HasSubstr("rank 0: an exception that is no std::exception"));
  bool has_run = false;
  EXPECT_EQ(ErrorOf(runner, [&](Communicator&) { has_run = true; }), "");
  EXPECT_TRUE(has_run);
}

TEST(ProcessRunnerTest, RefusesMoreRanksThanThereAreProcesses) {
  ProcessRunner runner(World{}, {}, Store::InFile(NewPath("other"), 1));
  EXPECT_THROW(runner.Run({.ranks = 2}, [](Communicator&) {}), InvalidArgument);
}

}  // namespace
}  // namespace collectives
