#include "trainsys/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

TEST(WarmupCosineTest, WarmUpGrowsEvenlyToOneAtItsLastStep) {
  const WarmupCosine schedule{.warmup_steps = 8, .total_steps = 100};
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(schedule.Factor(step), (step + 1) / 8.0) << step;
  }
  EXPECT_LT(schedule.Factor(8), 1);
}

// From 1 at step 3 to 0.25 at step 9: halfway at step 6.
TEST(WarmupCosineTest, CosineFallsFromThereToTheLeastFactorAtTheLastStep) {
  const WarmupCosine schedule{
      .warmup_steps = 4, .total_steps = 10, .min_factor = 0.25};
  EXPECT_NEAR(schedule.Factor(4), 0.25 + 0.375 * (1 + std::sqrt(3) / 2), 1e-15);
  EXPECT_NEAR(schedule.Factor(5), 0.25 + 0.375 * 1.5, 1e-15);
  EXPECT_NEAR(schedule.Factor(6), 0.25 + 0.375, 1e-15);
  EXPECT_NEAR(schedule.Factor(7), 0.25 + 0.375 * 0.5, 1e-15);
  EXPECT_GT(schedule.Factor(8), 0.25);
  EXPECT_EQ(schedule.Factor(9), 0.25);
}

TEST(WarmupCosineTest, TheLeastFactorStaysAfterTheLastStep) {
  const WarmupCosine schedule{
      .warmup_steps = 4, .total_steps = 10, .min_factor = 0.25};
  EXPECT_EQ(schedule.Factor(10), 0.25);
  EXPECT_EQ(schedule.Factor(std::numeric_limits<int64_t>::max()), 0.25);
}

TEST(WarmupCosineTest, WithoutWarmUpTheFirstStepHasOne) {
  const WarmupCosine schedule{.total_steps = 5};
  EXPECT_EQ(schedule.Factor(0), 1);
  EXPECT_NEAR(schedule.Factor(2), 0.5, 1e-15);
  EXPECT_EQ(schedule.Factor(4), 0);
}

TEST(WarmupCosineTest, ShortRunsReachOneAndEndThere) {
  EXPECT_EQ((WarmupCosine{.total_steps = 1}.Factor(0)), 1);
  EXPECT_EQ((WarmupCosine{.total_steps = 1}.Factor(1)), 0);
  const WarmupCosine all_warmup{.warmup_steps = 2, .total_steps = 2};
  EXPECT_EQ(all_warmup.Factor(0), 0.5);
  EXPECT_EQ(all_warmup.Factor(1), 1);
  EXPECT_EQ(all_warmup.Factor(2), 0);
}

TEST(WarmupCosineTest, NonsenseIsRefused) {
  EXPECT_THROW(Validate(WarmupCosine{.total_steps = 0}), InvalidArgument);
  EXPECT_THROW(Validate(WarmupCosine{.warmup_steps = -1}), InvalidArgument);
  EXPECT_THROW(Validate(WarmupCosine{.warmup_steps = 3, .total_steps = 2}),
               InvalidArgument);
  for (const double bad :
       {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(Validate(WarmupCosine{.min_factor = bad}), InvalidArgument);
  }
  EXPECT_THROW((WarmupCosine{.total_steps = 3}.Factor(-1)), InvalidArgument);
  EXPECT_THROW((WarmupCosine{.total_steps = 0}.Factor(0)), InvalidArgument);
}

}  // namespace
}  // namespace trainsys
