#include "trainsys/optim/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace trainsys {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

ExactSum SumOf(std::span<const double> numbers) {
  ExactSum sum;
  for (const double x : numbers) sum.Add(x);
  return sum;
}

double Rounded(const std::vector<double>& numbers) {
  return SumOf(numbers).Round();
}

std::vector<int64_t> PartsOf(ExactSum sum) {
  const std::span<int64_t> parts = sum.parts();
  return {parts.begin(), parts.end()};
}

// What a sum all-reduce does.
void AddParts(std::span<const int64_t> from, std::span<int64_t> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// All mantissas, both signs, exponents from `low` to `high`.
std::vector<double> Numbers(size_t n, int low, int high, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers(n);
  for (double& x : numbers) {
    const auto mantissa = static_cast<int64_t>(random()) >> 10;  // 54 bits
    const auto more = static_cast<int>(random() % (high - low + 1));
    x = std::ldexp(static_cast<double>(mantissa), low + more);
  }
  return numbers;
}

TEST(ExactSumTest, EqualsTheSumOfIntegersRoundedOnce) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    ExactSum sum;
    __int128 exact = 0;
    for (const double x : Numbers(1000, 0, 50, seed)) {
      sum.Add(x);
      exact += static_cast<__int128>(x);
      ASSERT_EQ(sum.Round(), static_cast<double>(exact)) << "seed " << seed;
    }
  }
}

TEST(ExactSumTest, OneNumberOfAnyExponentComesBackAsItIs) {
  std::mt19937_64 random(1);
  for (uint64_t exponent = 0; exponent < 0x7ff; ++exponent) {
    for (int i = 0; i < 20; ++i) {
      const uint64_t sign_and_mantissa = random() & 0x800f'ffff'ffff'ffff;
      const auto x = std::bit_cast<double>(sign_and_mantissa | exponent << 52);
      ASSERT_EQ(Rounded({x}), x);
    }
  }
}

TEST(ExactSumTest, NothingIsLostWhereLargeNumbersCancel) {
  EXPECT_EQ(Rounded({kMax, kTiny, -kMax}), kTiny);
  EXPECT_EQ(Rounded({-kMax, -kTiny, kMax}), -kTiny);
  EXPECT_EQ(Rounded({1e300, 1, 1e-300, -1e300, -1}), 1e-300);
  std::vector<double> numbers = Numbers(2000, -1074, 970, 3);
  const std::vector<double> some = numbers;
  for (const double x : some) numbers.push_back(-x);
  numbers.push_back(0.125);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(1));
  EXPECT_EQ(Rounded(numbers), 0.125);
}

TEST(ExactSumTest, NoOrderChangesABit) {
  std::vector<double> numbers = Numbers(2000, -1074, 960, 5);
  const std::vector<int64_t> parts = PartsOf(SumOf(numbers));
  const double rounded = Rounded(numbers);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(seed));
    EXPECT_EQ(PartsOf(SumOf(numbers)), parts);
    EXPECT_EQ(Rounded(numbers), rounded);
  }
}

TEST(ExactSumTest, TiesGoToTheEvenNumberAndTheLeastExcessDecidesThem) {
  for (int exponent = -900; exponent <= 900; ++exponent) {
    const auto scaled = [exponent](double x) {
      return std::ldexp(x, exponent);
    };
    for (const double sign : {1.0, -1.0}) {
      const double one = sign * scaled(1), half_ulp = sign * scaled(0x1p-53);
      const double next = sign * scaled(1 + 0x1p-52);
      const double after = sign * scaled(1 + 0x1p-51);
      ASSERT_EQ(Rounded({one, half_ulp}), one) << exponent;
      ASSERT_EQ(Rounded({one, half_ulp, sign * kTiny}), next) << exponent;
      ASSERT_EQ(Rounded({one, half_ulp, -sign * kTiny}), one) << exponent;
      ASSERT_EQ(Rounded({next, half_ulp}), after) << exponent;
      ASSERT_EQ(Rounded({next, half_ulp, -sign * kTiny}), next) << exponent;
    }
  }
}

TEST(ExactSumTest, AnExcessAtAnyDistanceDecidesATie) {
  for (int exponent = 0; exponent < 32; ++exponent) {
    const double one = std::ldexp(1, exponent);
    for (int below = 1; below <= 130; ++below) {
      ASSERT_EQ(Rounded({one, one * 0x1p-53, std::ldexp(one, -53 - below)}),
                one * (1 + 0x1p-52))
          << exponent << ", " << below;
    }
  }
}

TEST(ExactSumTest, DenormalsAddUpExactly) {
  std::mt19937_64 random(7);
  ExactSum sum;
  int64_t units = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto n = static_cast<int64_t>(random() >> 13) - (int64_t{1} << 50);
    sum.Add(static_cast<double>(n) * kTiny);
    units += n;
  }
  EXPECT_EQ(sum.Round(), std::ldexp(static_cast<double>(units), -1074));
  EXPECT_EQ(Rounded({0x1p-1022, -kTiny}), 0x1p-1022 - kTiny);
}

TEST(ExactSumTest, WhatIsBeyondTheLargestNumberIsInfinite) {
  EXPECT_EQ(Rounded({kMax, kMax}), kInf);
  EXPECT_EQ(Rounded({-kMax, -kMax}), -kInf);
  EXPECT_EQ(Rounded({kMax, kMax, -kMax}), kMax);
  EXPECT_EQ(Rounded({kMax, 0x1p970}), kInf);
  EXPECT_EQ(Rounded({kMax, 0x1p970, -kTiny}), kMax);
  EXPECT_EQ(Rounded(std::vector<double>(100'000, kMax)), kInf);
}

TEST(ExactSumTest, NothingAndZerosOfAnySignAreZero) {
  EXPECT_FALSE(std::signbit(Rounded({})));
  EXPECT_FALSE(std::signbit(Rounded({-0.0, -0.0})));
  EXPECT_EQ(Rounded({1, -1, 0, -0.0}), 0);
}

TEST(ExactSumTest, InfinitiesAndNaNWinAsInIEEEArithmetic) {
  EXPECT_EQ(Rounded({1, kInf, -kMax}), kInf);
  EXPECT_EQ(Rounded({kInf, kInf}), kInf);
  EXPECT_EQ(Rounded({1, -kInf}), -kInf);
  EXPECT_TRUE(std::isnan(Rounded({kInf, -kInf})));
  EXPECT_TRUE(std::isnan(Rounded({1, kNan})));
  EXPECT_TRUE(std::isnan(Rounded({kInf, -kNan})));
}

// On one rank what another one has not seen.
TEST(ExactSumTest, PartsOfSeveralSumsAddUpToThePartsOfAll) {
  std::vector<double> numbers = Numbers(2000, -1074, 960, 9);
  for (const size_t ranks : {1u, 2u, 3u, 7u, 64u}) {
    ExactSum total;
    for (size_t rank = 0; rank < ranks; ++rank) {
      ExactSum mine;
      for (size_t i = rank; i < numbers.size(); i += ranks) {
        mine.Add(numbers[i]);
      }
      AddParts(mine.parts(), total.parts());
    }
    EXPECT_EQ(PartsOf(total), PartsOf(SumOf(numbers)));
    EXPECT_EQ(total.Round(), Rounded(numbers));
  }
  ExactSum infinite = SumOf(std::vector{kInf});
  ExactSum minus = SumOf(std::vector{-kInf});
  AddParts(minus.parts(), infinite.parts());
  EXPECT_TRUE(std::isnan(infinite.Round()));
}

TEST(ExactSumTest, ManyRanksMayAddWhatManyRanksHaveAdded) {
  constexpr int kRanks = 4096;
  for (const double x : {-kTiny, 1 - 0x1p-53, -(1 - 0x1p-53)}) {
    ExactSum sum = SumOf(std::vector{x});
    double expected = x;
    for (int round = 0; round < 5; ++round) {
      const std::vector<int64_t> mine = PartsOf(sum);
      for (int rank = 1; rank < kRanks; ++rank) AddParts(mine, sum.parts());
      expected *= kRanks;
      EXPECT_EQ(sum.Round(), expected);
      sum.Add(x);
      sum.Add(-x);
    }
  }
}

// As an all-reduce leaves them: the digits of 4096 ranks, not normalised.
TEST(ExactSumTest, PartsAreNormalisedBeforeTheyAreHandedOut) {
  ExactSum sum = SumOf(std::vector<double>(100'000, -1.75));
  const std::span<int64_t> parts = sum.parts();
  for (size_t i = 0; i + 1 < ExactSum::kDigits; ++i) {
    EXPECT_GE(parts[i], 0);
    EXPECT_LT(parts[i], int64_t{1} << 32);
  }
  for (int64_t& part : parts) part *= 4096;
  sum.Add(1);
  EXPECT_EQ(sum.Round(), -1.75e5 * 4096 + 1);
}

std::vector<int64_t> PartsThroughWindow(double like,
                                        const std::vector<double>& numbers) {
  ExactSum sum;
  {
    ExactSum::Window window(like, sum);
    for (const double x : numbers) window.Add(x);
  }
  return PartsOf(sum);
}

TEST(ExactSumWindowTest, GivesThePartsThatAddGivesWhereverItLies) {
  std::vector<double> numbers = Numbers(2000, -1074, 960, 11);
  numbers.insert(numbers.end(),
                 {0, -0.0, kTiny, 0x1p-1022, kMax, kInf, -kInf, kNan, -1});
  const std::vector<int64_t> expected = PartsOf(SumOf(numbers));
  for (const double like : {0.0, kTiny, 0x1p-1022, 0x1p-1000, 1e-300, 1e-20,
                            1.0, 1e20, 1e300, kMax, kInf, kNan, -1.0}) {
    EXPECT_EQ(PartsThroughWindow(like, numbers), expected) << like;
  }
}

TEST(ExactSumWindowTest, NumbersAtItsBordersAreExact) {
  for (const double like : {1.5, 0x1p-1010, 0x1p1000}) {
    std::vector<double> numbers;
    for (int e = -70; e <= 70; ++e) {
      const double x = std::ldexp(2 - 0x1p-52, std::ilogb(like) + e);
      if (std::isfinite(x)) numbers.push_back(x);
    }
    EXPECT_EQ(PartsThroughWindow(like, numbers), PartsOf(SumOf(numbers)));
  }
}

TEST(ExactSumWindowTest, HoldsAsManyOfItsLargestAsItSays) {
  for (int exponent = 20; exponent < 50; ++exponent) {
    const double large = std::ldexp(2 - 0x1p-52, exponent);
    const std::vector<double> numbers(ExactSum::Window::kMaxAdds, large);
    EXPECT_EQ(PartsThroughWindow(1, numbers), PartsOf(SumOf(numbers)));
  }
}

}  // namespace
}  // namespace trainsys
