#include "trainsys/measure/recompute_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "collectives/shm/run_ranks.h"
#include "tests/measure/tiny_job.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using ::testing::ElementsAre;

// A block of each kind under every-4.
JobOptions FiveLayers() {
  JobOptions options = TinyJob();
  options.model.layers = 5;
  return options;
}

RecomputeFinding Measure(int turns, const MeasureProgress& progress = {}) {
  return MeasureRecompute(FiveLayers(), TinyStories(), turns, progress);
}

TEST(MeasureRecomputeTest, EveryPolicyHasItsTimesAndTheBytesOfItsFormula) {
  const RecomputeFinding finding = Measure(3);
  EXPECT_EQ(finding.turns, 3);
  EXPECT_EQ(finding.model.layers, 5);
  EXPECT_EQ(finding.model.rows, 2);
  std::vector<std::string> names;
  for (const RecomputeCost& cost : finding.costs) {
    SCOPED_TRACE(cost.policy);
    names.push_back(cost.policy);
    EXPECT_EQ(cost.saved_bytes, cost.formula_bytes);
    EXPECT_GE(cost.peak_bytes, cost.saved_bytes);
    EXPECT_GT(cost.saved_bytes, 0);
    EXPECT_GT(cost.step_ms.low, 0);
    EXPECT_LE(cost.step_ms.low, cost.step_ms.median);
    EXPECT_LE(cost.step_ms.median, cost.step_ms.high);
    EXPECT_TRUE(std::isfinite(cost.extra_percent.median));
    EXPECT_GT(cost.extra_percent.low, -100);
  }
  EXPECT_THAT(names,
              ElementsAre("none", "selective", "every-4", "every-2", "full"));
}

TEST(MeasureRecomputeTest, NoneCostsNothingBesideItselfAndFullSavesMost) {
  const auto costs = Measure(2).costs;
  EXPECT_EQ(costs[0].extra_percent.low, 0);
  EXPECT_EQ(costs[0].extra_percent.high, 0);
  EXPECT_EQ(costs[0].model_extra_percent, 0);
  for (size_t i = 1; i < costs.size(); ++i) {
    EXPECT_LT(costs[i].saved_bytes, costs[0].saved_bytes);
    EXPECT_GT(costs[i].model_extra_percent, 0);
    if (i + 1 == costs.size()) continue;
    EXPECT_GT(costs[i].saved_bytes, costs.back().saved_bytes);
    EXPECT_LT(costs[i].model_extra_percent, costs.back().model_extra_percent);
  }
}

// By hand, in multiply-adds a token: 4 D^2 + 3 D F for a block's layers, 2 D
// for each of the 6 of 8 positions that its attention sees on average, D V for
// the output layer.
TEST(MeasureRecomputeTest, TheModelIsTheShareOfWhatRunsTwice) {
  const auto costs = Measure(1).costs;
  const double block = 4 * 20 * 20 + 3 * 20 * 30 + 2 * 6 * 20;
  const double forward = 5 * block + 20 * 256;
  EXPECT_NEAR(costs[2].model_extra_percent, 100 * block / (3 * forward), 1e-9);
  EXPECT_NEAR(costs[3].model_extra_percent, 200 * block / (3 * forward), 1e-9);
  EXPECT_NEAR(costs[4].model_extra_percent, 500 * block / (3 * forward), 1e-9);
}

// What a job of one rank has, with its ledger.
TEST(MeasureRecomputeTest, ItsBytesAreThoseOfAJob) {
  JobOptions job = FiveLayers();
  job.ranks = 1;
  job.steps = 2;
  for (const RecomputeCost& cost : Measure(1).costs) {
    job.recompute = cost.policy;
    collectives::ThreadRunner runner;
    const RankSummary rank = RunJob(runner, job, TinyStories()).ranks.at(0);
    EXPECT_EQ(
        cost.saved_bytes,
        rank.memory[StepPoint::kAfterForward][MemoryCategory::kActivation]);
    EXPECT_EQ(cost.peak_bytes,
              rank.peak.of_category[MemoryCategory::kActivation]);
  }
}

TEST(MeasureRecomputeTest, ProgressCountsTheTurnsAndAnInterruptEndsThem) {
  std::vector<int64_t> seen;
  const InterruptScope scope;
  const auto interrupt_in_the_third = [&](int64_t done, int64_t all,
                                          const std::string&) {
    EXPECT_EQ(all, 6);
    seen.push_back(done);
    if (seen.size() == 3) std::raise(SIGTERM);
  };
  EXPECT_THROW(Measure(5, interrupt_in_the_third), Interrupted);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace trainsys
