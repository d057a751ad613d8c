#include "trainsys/svg/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace trainsys {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(AxisTest, FiguresLieEvenlyAndThoseOutsideAtItsEnds) {
  const Axis axis(10, 20, 100, 0);
  EXPECT_DOUBLE_EQ(axis.At(10), 100);
  EXPECT_DOUBLE_EQ(axis.At(12.5), 75);
  EXPECT_DOUBLE_EQ(axis.At(25), 0);
  EXPECT_DOUBLE_EQ(axis.At(5), 100);
  EXPECT_DOUBLE_EQ(Axis(3, 3, 7, 9).At(3), 7);
}

TEST(RoundTicksTest, TicksAreOneTwoOrFiveTimesAPowerOfTenApart) {
  EXPECT_THAT(RoundTicks(0, 80, 4), ElementsAre(0, 20, 40, 60, 80));
  EXPECT_THAT(RoundTicks(230, 262, 4), ElementsAre(230, 240, 250, 260));
  EXPECT_THAT(RoundTicks(0.11, 0.31, 2),
              Pointwise(DoubleNear(1e-12), {0.2, 0.3}));
  EXPECT_THAT(RoundTicks(5, 5, 4), ElementsAre(5));
  EXPECT_FALSE(std::signbit(RoundTicks(0, 1, 4)[0]));
}

TEST(RoundStretchTest, AStretchHoldsItsFiguresAndEndsOnTicks) {
  const Stretch stretch = RoundStretch(238.7, 263.2, 4);
  EXPECT_DOUBLE_EQ(stretch.from, 230);
  EXPECT_DOUBLE_EQ(stretch.to, 270);
  EXPECT_LT(RoundStretch(4, 4, 4).from, RoundStretch(4, 4, 4).to);
}

TEST(PlaceFreeTest, TheFirstPlaceThatMeetsNothingIsTakenElseTheFreest) {
  std::vector<Box> taken = {{0, 0, 10, 10}};
  const Box here{5, 5, 10, 10}, beside{10, 0, 10, 10};
  EXPECT_EQ(PlaceFree({here, beside}, taken).left, 10);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(PlaceFree({beside, here}, taken).left, 5);
}

TEST(BinaryBytesTest, SizesAreCountedInTheLargestUnitThatDividesThem) {
  EXPECT_EQ(BinaryBytes(16 << 10), "16 KiB");
  EXPECT_EQ(BinaryBytes(1 << 20), "1 MiB");
  EXPECT_EQ(BinaryBytes((1 << 20) + 1024), "1025 KiB");
  EXPECT_EQ(BinaryBytes(1000), "1000 bytes");
  EXPECT_EQ(BinaryBytes(0), "0 bytes");
}

}  // namespace
}  // namespace trainsys
