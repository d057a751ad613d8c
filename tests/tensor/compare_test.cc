#include "trainsys/tensor/compare.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trainsys {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(EqualBitsTest, ZerosOfBothSignsDiffer) {
  EXPECT_FALSE(EqualBits({at::full({3}, 0.0)}, {at::full({3}, -0.0)}));
  EXPECT_EQ(MaxDifference({at::full({3}, 0.0)}, {at::full({3}, -0.0)}), 0);
}

TEST(EqualBitsTest, NaNsOfTheSameBitsAreEqual) {
  const at::Tensor nan = at::full({3}, std::nan(""));
  EXPECT_TRUE(EqualBits({nan}, {nan.clone()}));
}

TEST(EqualBitsTest, ShapesTypesAndLengthsCount) {
  const at::Tensor x = at::zeros({2, 3});
  EXPECT_TRUE(EqualBits({x}, {at::zeros({2, 3})}));
  EXPECT_FALSE(EqualBits({x}, {at::zeros({3, 2})}));
  EXPECT_FALSE(EqualBits({x}, {at::zeros({2, 3}, at::kInt)}));
  EXPECT_FALSE(EqualBits({x}, {}));
  EXPECT_FALSE(EqualBits({x}, {x, x}));
  EXPECT_TRUE(EqualBits({}, {}));
}

TEST(EqualBitsTest, TheLastBitOfTheLastTensorCounts) {
  const at::Tensor x = at::arange(1000, at::kFloat);
  const at::Tensor y = x.clone();
  float& last = y.data_ptr<float>()[999];
  last = std::nextafter(last, 0.0F);
  EXPECT_FALSE(EqualBits({x, x}, {x, y}));
}

TEST(EqualBitsTest, GoesByValuesNotByMemoryLayout) {
  const at::Tensor x = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_TRUE(EqualBits({x.t()}, {x.t().contiguous()}));
}

TEST(MaxDifferenceTest, IsTheLargestOfAllTensors) {
  const at::Tensor x = at::arange(10, at::kFloat);
  const at::Tensor y = x.clone();
  y[3] -= 0.5;
  const at::Tensor z = x.clone();
  z[9] += 2;
  EXPECT_EQ(MaxDifference({x, x, x}, {y, z, x}), 2);
}

TEST(MaxDifferenceTest, IsInfiniteForNaN) {
  const at::Tensor x = at::zeros({3});
  const at::Tensor y = x.clone();
  y[1] = std::nan("");
  EXPECT_EQ(MaxDifference({x}, {y}), kInfinity);
  EXPECT_EQ(MaxDifference({y}, {x}), kInfinity);
}

TEST(MaxDifferenceTest, IsInfiniteForOtherShapesOrLengths) {
  const at::Tensor x = at::zeros({2, 3});
  EXPECT_EQ(MaxDifference({x}, {at::zeros({3, 2})}), kInfinity);
  EXPECT_EQ(MaxDifference({x}, {}), kInfinity);
}

TEST(MaxDifferenceTest, EmptyTensorsDoNotDiffer) {
  EXPECT_EQ(MaxDifference({at::empty({0, 3})}, {at::empty({0, 3})}), 0);
}

TEST(SnapshotTest, DoesNotFollowLaterChanges) {
  const at::Tensor x = at::zeros({3}).set_requires_grad(true);
  const std::vector<at::Tensor> copy = Snapshot({x});
  x.data().fill_(1);
  EXPECT_EQ(MaxDifference(copy, {at::zeros({3})}), 0);
  EXPECT_FALSE(copy[0].requires_grad());
}

}  // namespace
}  // namespace trainsys
