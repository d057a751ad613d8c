#include "trainsys/optim/sum_of_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace trainsys {
namespace {

template <typename T>
constexpr size_t kUnit = 64 / sizeof(T);

std::vector<int64_t> PartsOf(ExactSum sum) {
  const std::span<int64_t> parts = sum.parts();
  return {parts.begin(), parts.end()};
}

template <typename T>
ExactSum SquaresOf(std::span<const T> values) {
  ExactSum sum;
  AddSquares(values, sum);
  return sum;
}

// Of magnitudes 2^-spread to 2^spread, of both signs.
template <typename T>
std::vector<T> Values(size_t n, int spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> values(n);
  for (T& x : values) {
    const auto mantissa = static_cast<T>(static_cast<int32_t>(random()));
    const auto exponent = static_cast<int>(random() % (2 * spread + 1));
    x = std::ldexp(mantissa, exponent - spread - 31);
  }
  return values;
}

template <typename T>
class AddSquaresTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AddSquaresTest, Types);

TYPED_TEST(AddSquaresTest, SmallIntegersAreExact) {
  std::vector<TypeParam> values;
  double expected = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(SquaresOf<TypeParam>(values).Round(), expected) << i;
    values.push_back(static_cast<TypeParam>(i % 37 - 20));
    expected += (i % 37 - 20) * (i % 37 - 20);
  }
}

// More than one window of units, of one magnitude and of many.
TYPED_TEST(AddSquaresTest, IsWithinTheErrorThatTheHeaderSays) {
  for (const int spread : {0, 5, 60}) {
    const auto values = Values<TypeParam>(200'003, spread, 1);
    __float128 exact = 0;
    for (const TypeParam x : values) exact += static_cast<__float128>(x) * x;
    const double rounded = SquaresOf<TypeParam>(values).Round();
    const auto error = static_cast<double>((rounded - exact) / exact);
    EXPECT_LE(std::abs(error), 5.6e-16 + 1.2e-16) << "spread " << spread;
  }
}

// Lanes of four, then (0 + 2) + (1 + 3), and each unit's sum to its like.
TYPED_TEST(AddSquaresTest, HasTheBitsOfItsUnits) {
  for (const int spread : {0, 5, 60}) {
    const auto values = Values<TypeParam>(8 * kUnit<TypeParam>, spread, 2);
    ExactSum expected;
    for (size_t begin = 0; begin < values.size(); begin += kUnit<TypeParam>) {
      double lanes[4] = {};
      for (size_t i = 0; i < kUnit<TypeParam>; ++i) {
        const double x = values[begin + i];
        lanes[i % 4] += x * x;
      }
      expected.Add((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
    }
    EXPECT_EQ(PartsOf(SquaresOf<TypeParam>(values)), PartsOf(expected));
  }
}

TYPED_TEST(AddSquaresTest, NoCutAtSixtyFourBytesChangesABit) {
  constexpr size_t kStep = kUnit<TypeParam>;
  const auto values = Values<TypeParam>(50 * kStep + 3, 20, 3);
  const std::span<const TypeParam> all = values;
  const auto whole = PartsOf(SquaresOf(all));
  for (size_t cut = 0; cut <= all.size(); cut += kStep) {
    ExactSum sum;
    AddSquares(all.subspan(cut), sum);  // the last piece first
    AddSquares(all.first(cut), sum);
    EXPECT_EQ(PartsOf(sum), whole) << "cut at " << cut;
  }
  ExactSum unit_by_unit;
  for (size_t begin = 0; begin < all.size(); begin += kStep) {
    AddSquares(all.subspan(begin, std::min(kStep, all.size() - begin)),
               unit_by_unit);
  }
  EXPECT_EQ(PartsOf(unit_by_unit), whole);
}

// Windows of units begin elsewhere on each rank.
TYPED_TEST(AddSquaresTest, OneRankAndSevenHaveTheSameBits) {
  constexpr size_t kStep = kUnit<TypeParam>;
  constexpr size_t kRanks = 7;
  for (const int spread : {1, 40}) {
    const auto values = Values<TypeParam>(30'000 * kStep + 5, spread, 4);
    const std::span<const TypeParam> all = values;
    const size_t shard = (all.size() / kStep / kRanks + 1) * kStep;
    ExactSum total;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const auto mine =
          all.subspan(rank * shard, std::min(shard, all.size() - rank * shard));
      ExactSum sum = SquaresOf(mine);
      const std::span<int64_t> parts = total.parts();
      for (size_t i = 0; i < parts.size(); ++i) parts[i] += sum.parts()[i];
    }
    EXPECT_EQ(PartsOf(total), PartsOf(SquaresOf(all)));
    EXPECT_EQ(total.Round(), SquaresOf(all).Round());
  }
}

TYPED_TEST(AddSquaresTest, ZerosThatPadTheEndChangeNothing) {
  for (size_t n = 0; n <= 3 * kUnit<TypeParam>; ++n) {
    auto values = Values<TypeParam>(n, 5, 5);
    const auto expected = PartsOf(SquaresOf<TypeParam>(values));
    values.resize(4 * kUnit<TypeParam>);
    EXPECT_EQ(PartsOf(SquaresOf<TypeParam>(values)), expected) << n;
  }
}

TYPED_TEST(AddSquaresTest, WhereTheMemoryBeginsDoesNotMatter) {
  const auto values = Values<TypeParam>(101, 5, 6);
  const auto expected = PartsOf(SquaresOf<TypeParam>(values));
  for (size_t offset = 1; offset < kUnit<TypeParam>; ++offset) {
    std::vector<TypeParam> moved(offset, 1000);
    moved.insert(moved.end(), values.begin(), values.end());
    EXPECT_EQ(PartsOf(SquaresOf(std::span<const TypeParam>(moved).last(101))),
              expected);
  }
}

TYPED_TEST(AddSquaresTest, ZerosAtTheFrontAndWhatIsNotFiniteAreFine) {
  using T = TypeParam;
  std::vector<T> values(1000);
  EXPECT_EQ(SquaresOf<T>(values).Round(), 0);
  values[999] = 3;
  EXPECT_EQ(SquaresOf<T>(values).Round(), 9);
  values[500] = -std::numeric_limits<T>::infinity();
  EXPECT_EQ(SquaresOf<T>(values).Round(),
            std::numeric_limits<double>::infinity());
  values[0] = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(SquaresOf<T>(values).Round()));
}

TEST(AddSquaresTypesTest, SquaresOfFloatsNeitherOverflowNorVanish) {
  const float max = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(SquaresOf<float>(std::vector{max, max}).Round(),
            2.0 * double{max} * double{max});
  EXPECT_EQ(SquaresOf<float>(std::vector{tiny}).Round(), 0x1p-298);
}

TEST(AddSquaresTypesTest, SquaresOfDoublesBeyondTheirRangeAreInfinite) {
  EXPECT_EQ(SquaresOf<double>(std::vector{1e200}).Round(),
            std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace trainsys
