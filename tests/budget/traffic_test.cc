#include "trainsys/budget/traffic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

// 160 elements in f32, padding included: 64-byte multiples.
const std::vector<int64_t> kTensors = {100, 1, 17};
constexpr int64_t kP = 160 * 4;

StepTraffic Of(int stage, int ranks, int64_t micro_steps = 1) {
  return StepTrafficOf(kTensors, {.zero_stage = stage, .ranks = ranks},
                       micro_steps);
}

TEST(TrafficTest, OneRankSendsNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(Of(stage, 1).Total(), 0);
  }
}

// In units of P(N-1)/N: DDP 2, ZeRO-2 2, ZeRO-1 over all-reduce 3, over
// reduce-scatter 2, ZeRO-3 3.
TEST(TrafficTest, EveryStageSendsItsVolume) {
  for (int n : {2, 4, 5, 8}) {
    SCOPED_TRACE("ranks " + std::to_string(n));
    const int64_t unit = kP * (n - 1) / n;
    EXPECT_EQ(Of(0, n).Total(), 2 * unit);
    EXPECT_EQ(Of(0, n).parameters, 0);
    EXPECT_EQ(Of(1, n).Total(), 3 * unit);
    EXPECT_EQ(Of(1, n).gradients_by_reduce_scatter + Of(1, n).parameters,
              2 * unit);
    EXPECT_EQ(Of(2, n).Total(), 2 * unit);
    EXPECT_EQ(Of(3, n).Total(), 3 * unit);
  }
}

TEST(TrafficTest, MicroStepsCostZeroTwoAReduceScatterEach) {
  const int64_t unit = kP * 3 / 4;
  EXPECT_EQ(Of(2, 4, 5).Total(), 6 * unit);
  EXPECT_EQ(Of(0, 4, 5).Total(), 2 * unit) << "one all-reduce a step";
}

TEST(TrafficTest, StageOneOverReduceScatterSendsTwoVolumes) {
  for (int n : {2, 3, 4, 5, 8}) {
    SCOPED_TRACE("ranks " + std::to_string(n));
    StatesOptions options{.zero_stage = 1,
                          .reduction = GradientReduction::kReduceScatter,
                          .ranks = n};
    const StepTraffic traffic = StepTrafficOf(kTensors, options, 5);
    EXPECT_EQ(traffic.gradients, kP * (n - 1) / n) << "once a step";
    EXPECT_EQ(traffic.gradients, traffic.gradients_by_reduce_scatter);
    EXPECT_EQ(traffic.parameters, kP * (n - 1) / n);
    options.zero_stage = 0;
    EXPECT_EQ(StepTrafficOf(kTensors, options).gradients, 2 * kP * (n - 1) / n)
        << "DDP all-reduces";
  }
}

// Three ranks own 448, 64 and 128 bytes by tensor; each rounds by itself.
TEST(TrafficTest, WholeTensorsAreBroadcastByTheirOwners) {
  for (int stage : {1, 2}) {
    StatesOptions options{.zero_stage = stage, .ranks = 3};
    EXPECT_EQ(StepTrafficOf(kTensors, options).parameters, 640 * 2 / 3);
    for (Partition partition : {Partition::kByTensor, Partition::kBalanced}) {
      options.partition = partition;
      EXPECT_EQ(StepTrafficOf(kTensors, options).parameters,
                448 * 2 / 3 + 64 * 2 / 3 + 128 * 2 / 3);
    }
  }
}

TEST(TrafficTest, OptimizerStateCostsItsShareOfTheParametersBytes) {
  const auto of = [](Precision precision) {
    return StepTrafficOf(std::vector<int64_t>{4096},
                         {.zero_stage = 1, .precision = precision, .ranks = 4});
  };
  const StepTraffic f32 = of(Precision::kF32);
  EXPECT_EQ(f32.optimizer_state_instead, 2 * f32.parameters);
  const StepTraffic masters = of(Precision::kBf16Masters);
  EXPECT_EQ(masters.optimizer_state_instead, 6 * masters.parameters);
}

// Records round down at every collective, and so does the plan.
TEST(TrafficTest, EachBucketIsRoundedByItself) {
  const StepTraffic one = StepTrafficOf(std::vector<int64_t>{16, 16},
                                        {.ranks = 3, .bucket_bytes = 1 << 20});
  const StepTraffic two = StepTrafficOf(std::vector<int64_t>{16, 16},
                                        {.ranks = 3, .bucket_bytes = 64});
  EXPECT_EQ(one.gradients, 128 * 4 / 3);
  EXPECT_EQ(two.gradients, 2 * (64 * 4 / 3));
}

TEST(TrafficTest, WrongMicroStepsAreRefused) {
  EXPECT_THROW(Of(2, 4, 0), collectives::InvalidArgument);
}

}  // namespace
}  // namespace trainsys
