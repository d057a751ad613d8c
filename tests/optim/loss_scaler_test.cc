#include "trainsys/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

TEST(LossScalerTest, BeginsAsGradScalerDoes) {
  EXPECT_EQ(LossScaler().scale(), 65536);
  const LossScalerOptions options;
  EXPECT_EQ(options.growth, 2);
  EXPECT_EQ(options.backoff, 0.5);
  EXPECT_EQ(options.growth_interval, 2000);
}

TEST(LossScalerTest, GrowsAfterSoManyFiniteStepsInARow) {
  LossScaler scaler(
      {.initial_scale = 8, .growth = 4, .backoff = 0.5, .growth_interval = 3});
  for (const double expected : {8, 8, 32, 32, 32, 128}) {
    scaler.Update(true);
    EXPECT_EQ(scaler.scale(), expected);
  }
}

TEST(LossScalerTest, ShrinksAtOnceAndCountsFromTheStart) {
  LossScaler scaler(
      {.initial_scale = 8, .growth = 2, .backoff = 0.25, .growth_interval = 3});
  scaler.Update(true);
  scaler.Update(true);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 2);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 0.5);
  scaler.Update(true);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 0.5);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScalerTest, StaysANormalF32Number) {
  LossScaler large({.initial_scale = 0x1p126, .growth_interval = 1});
  large.Update(true);
  EXPECT_EQ(large.scale(), 0x1p127);
  large.Update(true);
  EXPECT_EQ(large.scale(), 0x1p127);
  LossScaler small({.initial_scale = 0x1p-125});
  small.Update(false);
  EXPECT_EQ(small.scale(), 0x1p-126);
  small.Update(false);
  EXPECT_EQ(small.scale(), 0x1p-126);
}

TEST(LossScalerTest, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<LossScalerOptions> bad{{.growth_interval = 0}};
  for (const double x : {0.0, -1.0, nan, inf, 1e39, 1e-39}) {
    bad.push_back({.initial_scale = x});
  }
  for (const double x : {1.0, 0.5, nan, inf}) bad.push_back({.growth = x});
  for (const double x : {0.0, 1.0, -0.5, nan}) bad.push_back({.backoff = x});
  for (const LossScalerOptions& options : bad) {
    EXPECT_THROW(LossScaler{options}, collectives::InvalidArgument);
  }
}

}  // namespace
}  // namespace trainsys
