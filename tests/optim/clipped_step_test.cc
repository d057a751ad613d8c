#include "trainsys/optim/clipped_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Remembers the scales it was stepped with.
class Fake final : public Optimizer {
 public:
  explicit Fake(double norm) : norm_(norm) {}

  void ZeroGrad() override {}
  void StepScaled(double gradient_scale) override {
    scales.push_back(gradient_scale);
  }
  double GradNorm() override { return norm_; }
  int64_t StateBytes() const override { return 0; }

  std::vector<double> scales;

 private:
  const double norm_;
};

TEST(StepClippedTest, ScalesDownToTheNormAndNeverUp) {
  Fake large(8), small(0.5), none(0);
  EXPECT_EQ(StepClipped(large, 2).grad_norm, 8);
  EXPECT_EQ(large.scales, std::vector<double>{2 / (8 + 1e-6)});
  StepClipped(small, 2);
  EXPECT_EQ(small.scales, std::vector<double>{1});
  StepClipped(none, 2);
  EXPECT_EQ(none.scales, std::vector<double>{1});
}

TEST(StepClippedTest, ANormThatIsNoNumberIsNotTakenForASmallOne) {
  Fake nan(std::nan("")), infinite(kInfinity);
  StepClipped(nan, 2);
  EXPECT_TRUE(std::isnan(nan.scales.at(0)));
  StepClipped(infinite, 2);
  EXPECT_EQ(infinite.scales.at(0), 0);
}

TEST(StepClippedTest, ANormToClipToMustBeAboveZero) {
  Fake optimizer(1);
  LossScaler scaler;
  for (double bad : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(StepClipped(optimizer, bad), InvalidArgument);
    EXPECT_THROW(StepIfFinite(optimizer, scaler, bad), InvalidArgument);
  }
  EXPECT_TRUE(optimizer.scales.empty());
}

TEST(StepIfFiniteTest, DividesTheScaleOutBeforeItClips) {
  LossScaler scaler({.initial_scale = 4, .growth_interval = 1});
  Fake optimizer(8);
  const ClippedStep step = StepIfFinite(optimizer, scaler, 1);
  EXPECT_TRUE(step.has_stepped);
  EXPECT_EQ(step.grad_norm, 2);
  EXPECT_EQ(optimizer.scales, std::vector<double>{1.0 / 4 / (2 + 1e-6)});
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(StepIfFiniteTest, SkipsWhatIsNotFiniteAndBacksOff) {
  for (double norm : {std::nan(""), kInfinity}) {
    LossScaler scaler({.initial_scale = 4});
    Fake optimizer(norm);
    EXPECT_FALSE(StepIfFinite(optimizer, scaler).has_stepped);
    EXPECT_TRUE(optimizer.scales.empty());
    EXPECT_EQ(scaler.scale(), 2);
  }
}

}  // namespace
}  // namespace trainsys
