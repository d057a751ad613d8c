#include "trainsys/measure/interleaved.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace trainsys {
namespace {

using ::testing::ElementsAre;

std::vector<size_t> Turn(int turn, size_t n) {
  std::vector<size_t> order;
  for (size_t i = 0; i < n; ++i) order.push_back(VariantAt(turn, i, n));
  return order;
}

TEST(VariantAtTest, EveryOtherTurnGoesBackwardsEachTwoFromAnotherOneOn) {
  EXPECT_THAT(Turn(0, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Turn(1, 4), ElementsAre(0, 3, 2, 1));
  EXPECT_THAT(Turn(2, 4), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(Turn(3, 4), ElementsAre(1, 0, 3, 2));
}

TEST(VariantAtTest, EachTurnHasEveryVariantOnce) {
  for (int turn = 0; turn < 20; ++turn) {
    const std::vector<size_t> order = Turn(turn, 7);
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), 7)
        << "turn " << turn;
  }
}

TEST(VariantAtTest, AllRunTwiceInARowAsOften) {
  for (const size_t n : {2u, 3u, 13u}) {
    std::vector<int> firsts(n), repeats(n);
    for (int turn = 1; turn <= 2 * static_cast<int>(n); ++turn) {
      const size_t first = VariantAt(turn, 0, n);
      ++firsts[first];
      repeats[first] += VariantAt(turn - 1, n - 1, n) == first;
    }
    EXPECT_EQ(firsts, std::vector<int>(n, 2));
    EXPECT_EQ(repeats, std::vector<int>(n, 1));
  }
}

TEST(InterleavedMsTest, EveryVariantRunsOnceToWarmUpAndOnceATurn) {
  std::vector<int> calls(3);
  std::vector<std::function<void()>> variants;
  for (int& count : calls) variants.push_back([&count] { ++count; });
  const auto ms = InterleavedMs(variants, 5);
  EXPECT_THAT(calls, ElementsAre(6, 6, 6));
  for (const auto& of_variant : ms) EXPECT_EQ(of_variant.size(), 5);
}

Quartiles Of(const std::vector<double>& values) {
  return OverTurns(values.size(), [&](size_t turn) { return values[turn]; });
}

TEST(QuartilesTest, BetweenTwoRanksTheyLieBetweenTheirValues) {
  const Quartiles three = Of({3, 1, 2});
  EXPECT_EQ(three.low, 1.5);
  EXPECT_EQ(three.median, 2);
  EXPECT_EQ(three.high, 2.5);
  const Quartiles two = Of({5, 1});
  EXPECT_EQ(two.low, 2);
  EXPECT_EQ(two.median, 3);
  EXPECT_EQ(two.high, 4);
}

TEST(QuartilesTest, OfOneValueAllAreIt) {
  const Quartiles one = Of({7});
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.high, 7);
}

// Else one end of a bar would be nearer to its median than the other.
TEST(QuartilesTest, OfValuesTurnedAroundTheyAreTurnedAround) {
  std::vector<double> values, turned;
  for (int i = 0; i < 24; ++i) {
    values.push_back(i * i % 17 + i / 8.0);
    turned.push_back(-values.back());
    const Quartiles there = Of(values), back = Of(turned);
    EXPECT_DOUBLE_EQ(there.low, -back.high) << i;
    EXPECT_DOUBLE_EQ(there.median, -back.median) << i;
  }
}

TEST(QuantileTest, ItsEndsAreTheLeastAndTheLargestValue) {
  EXPECT_EQ(Quantile({4, 2, 9}, 0), 2);
  EXPECT_EQ(Quantile({4, 2, 9}, 1), 9);
}

}  // namespace
}  // namespace trainsys
