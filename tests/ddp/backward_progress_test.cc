#include "trainsys/ddp/backward_progress.h"

#include <gtest/gtest.h>

#include <vector>

namespace trainsys {
namespace {

using Indices = std::vector<size_t>;

// Buckets {3, 1} and {0, 2}.
std::vector<Bucket> Plan() { return {{{3, 1}, {}}, {{0, 2}, {}}}; }

TEST(BackwardProgressTest, ABucketIsFullWhenAllOfItsGradientsAreReady) {
  BackwardProgress progress(4);
  progress.SetPlan(Plan());
  EXPECT_FALSE(progress.HasBegun());
  progress.MarkReady(1, 100);
  EXPECT_TRUE(progress.HasBegun());
  EXPECT_FALSE(progress.IsFull(0));
  progress.MarkReady(0, 200);
  progress.MarkReady(3, 300);
  EXPECT_TRUE(progress.IsFull(0));
  EXPECT_FALSE(progress.IsFull(1));
  EXPECT_TRUE(progress.IsReady(0));
  EXPECT_FALSE(progress.IsReady(2));
  EXPECT_EQ(progress.order(), (Indices{1, 0, 3}));
  EXPECT_EQ(progress.ready_ns(), (std::vector<int64_t>{200, 100, 0, 300}));
}

TEST(BackwardProgressTest, ARestartForgetsAllButTheTimes) {
  BackwardProgress progress(4);
  progress.SetPlan(Plan());
  progress.MarkUsed(2);
  for (size_t p : {0, 1, 2, 3}) progress.MarkReady(p, 7);
  progress.Restart();
  EXPECT_FALSE(progress.HasBegun());
  EXPECT_EQ(progress.is_used(), std::vector<bool>(4));
  for (size_t p : {0, 1, 2, 3}) EXPECT_FALSE(progress.IsReady(p));
  for (size_t b : {0, 1}) EXPECT_FALSE(progress.IsFull(b));
  EXPECT_EQ(progress.ready_ns(), std::vector<int64_t>(4, 7));
}

TEST(BackwardProgressTest, ANewPlanKeepsWhatWasUsed) {
  BackwardProgress progress(4);
  progress.SetPlan(Plan());
  progress.MarkUsed(2);
  progress.SetPlan(std::vector<Bucket>{{{0, 1, 2, 3}, {}}});
  EXPECT_EQ(progress.is_used(), (std::vector<bool>{false, false, true, false}));
  for (size_t p : {3, 0, 1}) progress.MarkReady(p, 1);
  EXPECT_FALSE(progress.IsFull(0));
  progress.MarkReady(2, 1);
  EXPECT_TRUE(progress.IsFull(0));
}

TEST(CompleteOrderTest, WhatWasNotSeenFollowsInReverseOfRegistration) {
  EXPECT_EQ(CompleteOrder({2, 0}, 5), (Indices{2, 0, 4, 3, 1}));
  EXPECT_EQ(CompleteOrder({}, 3), (Indices{2, 1, 0}));
  EXPECT_EQ(CompleteOrder({0, 1}, 2), (Indices{0, 1}));
}

}  // namespace
}  // namespace trainsys
