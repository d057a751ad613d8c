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

TEST(RecomputingScopeTest, WhatOnlyHappensToRunInItIsNone) {
  const RecomputingScope outer;
  const RecomputingScope inner;
  {
    const NotRecomputingScope apart;
    EXPECT_FALSE(IsRecomputing());
    { const RecomputingScope of_its_own; }
    EXPECT_FALSE(IsRecomputing());
  }
  EXPECT_TRUE(IsRecomputing());
}

}  // namespace
}  // namespace collectives
