#include "trainsys/measure/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

// Of a rank whose step begins at 100 ms, with two parameters.
const StepMarks kMarks{-100 * kMs, 110 * kMs, 140 * kMs, 145 * kMs,
                       148 * kMs,  138 * kMs, 112 * kMs};

TEST(StepTimesTest, PartsEndWhereTheirMarksAreAndAddUpToTheStep) {
  const StepTimes times = TimesOf(kMarks);
  EXPECT_EQ(times.forward_ms, 10);
  EXPECT_EQ(times.backward_ms, 30);
  EXPECT_EQ(times.sync_ms, 5);
  EXPECT_EQ(times.optimizer_ms, 3);
  EXPECT_EQ(times.whole_ms(), 48);
  EXPECT_THAT(times.ready_us, ElementsAre(28'000, 2000));
}

StepMarks Largest(StepMarks a, const StepMarks& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(),
                 [](int64_t x, int64_t y) { return std::max(x, y); });
  return a;
}

StepMarks Later(StepMarks marks, int64_t ns) {
  for (int64_t& mark : marks) mark += ns;
  marks[kMinusBegin] -= 2 * ns;
  return marks;
}

TEST(StepTimesTest, OverRanksAStepIsFromTheFirstBeginToTheLastEnd) {
  const StepMarks all = Largest(kMarks, Later(kMarks, 7 * kMs));
  const StepTimes times = TimesOf(all);
  EXPECT_EQ(times.whole_ms(), 48 + 7);
  EXPECT_EQ(times.forward_ms, 10 + 7);
  EXPECT_EQ(times.backward_ms, 30);
  EXPECT_THAT(times.ready_us, ElementsAre(28'000, 2000));
}

TEST(StepTimesTest, WhereClocksDifferAStepIsTheLongestOfTheRanks) {
  StepMarks slower = kMarks;
  slower[kOptimizerEnd] += 2 * kMs;
  const StepMarks all =
      Largest(SinceBegin(kMarks), SinceBegin(Later(slower, 5000 * kMs)));
  const StepTimes times = TimesOf(all);
  EXPECT_EQ(times.whole_ms(), 50);
  EXPECT_EQ(times.forward_ms, 10);
  EXPECT_EQ(times.optimizer_ms, 5);
  EXPECT_THAT(times.ready_us, ElementsAre(28'000, 2000));
}

// Two parameters of 16,000 bytes each; the second is ready first.
const std::vector<ParameterSize> kSizes{{4000, 4}, {4000, 4}};

MeasuredSteps Steps(int64_t bucket_bytes, const std::vector<StepTimes>& turns) {
  return {bucket_bytes, PlanBuckets(kSizes, {bucket_bytes, bucket_bytes}),
          turns};
}

StepTimes Times(double backward_ms, double sync_ms) {
  return {10, backward_ms, sync_ms, 3, {}};
}

// On a link of 50 us and 2 us more for each 1000 bytes.
MeasuredSweep Measured() {
  MeasuredSweep measured;
  measured.ranks = 3;
  measured.samples = {{0, 50}, {10'000, 70}, {20'000, 90}};
  measured.alone = Steps(1 << 20, {Times(30, 0), Times(30, 0), Times(90, 0)});
  measured.alone.turns[0].ready_us = {29'990, 100};
  measured.alone.turns[1].ready_us = {29'950, 29'930};
  measured.alone.turns[2].ready_us = {200, 89'000};
  measured.no_overlap = Steps(1 << 20, {Times(30, 2), Times(31, 3)});
  measured.sizes = {Steps(16'000, {Times(30, 1), Times(32, 4), Times(34, 2)}),
                    Steps(32'000, {Times(40, 0.5)})};
  return measured;
}

TEST(FiguresTest, MeasuredFiguresAreQuartilesOverTurns) {
  const BucketSweep sweep = FiguresOf(Measured());
  EXPECT_EQ(sweep.ranks, 3);
  EXPECT_EQ(sweep.turns, 3);
  ASSERT_EQ(sweep.points.size(), 2);
  EXPECT_EQ(sweep.points[0].bucket_bytes, 16'000);
  EXPECT_EQ(sweep.points[0].num_buckets, 2);
  EXPECT_EQ(sweep.points[1].num_buckets, 1);
  EXPECT_EQ(sweep.points[0].step_ms.median, 10 + 34 + 2 + 3);
  EXPECT_EQ(sweep.points[0].exposed_ms, 2);
  EXPECT_EQ(sweep.no_overlap_ms.low, 45.5);  // of 45 and 47
  EXPECT_EQ(sweep.no_overlap_ms.high, 46.5);
  EXPECT_EQ(sweep.alone_ms.median, 43);
  EXPECT_EQ(sweep.alone_ms.high, 73);  // of 43, 43 and 103
  EXPECT_EQ(sweep.forward_ms, 10);
  EXPECT_EQ(sweep.backward_ms, 30);
  EXPECT_EQ(sweep.optimizer_ms, 3);
}

// A step takes 13 ms besides its backward.
std::vector<StepTimes> Wholes(const std::vector<double>& ms) {
  std::vector<StepTimes> turns;
  for (const double whole : ms) turns.push_back(Times(whole - 13, 0));
  return turns;
}

// The machine slows down: quartiles of the whole overlap, no turn does.
TEST(FiguresTest, HowMuchLongerIsToldTurnByTurn) {
  MeasuredSweep measured = Measured();
  measured.sizes = {Steps(16'000, Wholes({44, 66, 99})),
                    Steps(32'000, Wholes({40, 60, 90})),
                    Steps(64'000, Wholes({38, 63, 90}))};
  measured.no_overlap = Steps(1 << 20, Wholes({38, 57, 99}));
  const BucketSweep sweep = FiguresOf(measured);
  const Quartiles& longer = sweep.points[0].over_best_percent;
  EXPECT_NEAR(longer.low, 10, 1e-9);
  EXPECT_NEAR(longer.high, 10, 1e-9);
  const Quartiles& best = sweep.points[1].over_best_percent;
  EXPECT_EQ(best.low, 0);
  EXPECT_EQ(best.high, 0);
  const Quartiles& as_fast = sweep.points[2].over_best_percent;
  EXPECT_NEAR(as_fast.low, -2.5, 1e-9);  // of -5, 0 and 5
  EXPECT_NEAR(as_fast.median, 0, 1e-9);
  EXPECT_NEAR(as_fast.high, 2.5, 1e-9);
  const Quartiles& without = sweep.no_overlap_over_best_percent;
  EXPECT_NEAR(without.low, -5, 1e-9);  // of -5, -5 and 10
  EXPECT_NEAR(without.high, 2.5, 1e-9);
}

TEST(FiguresTest, TheModelIsTheMedianOfTheTurnsAlone) {
  const BucketSweep sweep = FiguresOf(Measured());
  EXPECT_NEAR(sweep.link.latency_us, 50, 1e-6);
  EXPECT_NEAR(sweep.link.bytes_per_us, 500, 1e-6);
  EXPECT_EQ(sweep.samples.size(), 3);
  // 82 us each: the first bucket from 29,930 us on, the second one after it.
  EXPECT_NEAR(sweep.points[0].model_exposed_ms, 0.062 + 0.082, 1e-9);
  EXPECT_NEAR(sweep.points[0].model_step_ms, 10 + 29.93 + 2 * 0.082 + 3, 1e-9);
  // One bucket of both: 114 us from 29,990 us on.
  EXPECT_NEAR(sweep.points[1].model_exposed_ms, 0.114, 1e-9);
  EXPECT_NEAR(sweep.points[1].model_step_ms, 10 + 29.99 + 0.114 + 3, 1e-9);
  EXPECT_NEAR(sweep.model_no_overlap_ms, 10 + 30 + 0.114 + 3, 1e-9);
}

// Their medians would make a step of 23 ms, of which there is but one.
TEST(FiguresTest, TheModelsStepIsNotTheSumOfMediansOfParts) {
  MeasuredSweep measured = Measured();
  measured.alone.turns = {{10, 10, 0, 3, {9'000, 9'000}},
                          {60, 10, 0, 3, {9'000, 9'000}},
                          {10, 59, 1, 3, {58'000, 58'000}}};
  const BucketSweep sweep = FiguresOf(measured);
  EXPECT_EQ(sweep.alone_ms.median, 73);
  EXPECT_NEAR(sweep.points[0].model_step_ms, 73, 1e-9);
  EXPECT_NEAR(sweep.model_no_overlap_ms, 73.114, 1e-9);
}

TEST(FiguresTest, ElementsAreAsLongAsTheyAre) {
  MeasuredSweep measured = Measured();
  measured.elem_bytes = 8;
  EXPECT_NEAR(FiguresOf(measured).points[1].model_exposed_ms, 0.178, 1e-9);
}

TEST(FiguresTest, TimesOfNoLinkAreRefused) {
  MeasuredSweep measured = Measured();
  measured.samples.resize(1);
  EXPECT_THROW(FiguresOf(measured), collectives::InvalidArgument);
}

}  // namespace
}  // namespace trainsys
