#include "trainsys/random/splitmix64.h"

#include <gtest/gtest.h>

#include <set>

namespace trainsys {
namespace {

TEST(SplitMix64Test, NumbersAreThePublishedOnes) {
  SplitMix64 random(0);  // the reference generator's first numbers
  EXPECT_EQ(random.Next(), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(random.Next(), 0x6E789E6AA1B965F4u);
  EXPECT_EQ(random.Next(), 0x06C45D188009454Fu);
}

TEST(SplitMix64Test, BelowStaysBelowAndReachesEveryNumber) {
  SplitMix64 random(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.Below(7));
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SplitMix64Test, MixOfSmallNumbersNeverCollidesInTheLower32Bits) {
  std::set<uint32_t> seen;
  for (uint64_t a = 0; a < 64; ++a) {
    for (uint64_t b = 0; b < 64; ++b) {
      seen.insert(static_cast<uint32_t>(SplitMix64::Mix(a, b)));
    }
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
}

}  // namespace
}  // namespace trainsys
