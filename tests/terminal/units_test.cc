#include "trainsys/terminal/units.h"

#include <gtest/gtest.h>

namespace trainsys {
namespace {

TEST(UnitsTest, BytesHaveThreeDigitsAndAUnitOf1024) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1.00 KiB");
  EXPECT_EQ(BytesText(10 << 10), "10.0 KiB");
  EXPECT_EQ(BytesText(10 * 1024 - 1), "10.0 KiB");
  EXPECT_EQ(BytesText((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(BytesText(1023 << 10), "1023 KiB");
  EXPECT_EQ(BytesText(8267962), "7.88 MiB");
  EXPECT_EQ(BytesText(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(BytesText(int64_t{5000} << 40), "5000 TiB");
}

}  // namespace
}  // namespace trainsys
