#include "collectives/recomputing.h"

#include <gtest/gtest.h>

#include <thread>

namespace collectives {
namespace {

TEST(RecomputingScopeTest, NestsAndBelongsToItsThread) {
  EXPECT_FALSE(IsRecomputing());
  {
    const RecomputingScope outer;
    { const RecomputingScope inner; }
    EXPECT_TRUE(IsRecomputing());
    bool elsewhere = true;
    std::thread([&] { elsewhere = IsRecomputing(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(IsRecomputing());
}

}  // namespace
}  // namespace collectives
