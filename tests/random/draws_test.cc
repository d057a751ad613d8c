#include "trainsys/random/draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace trainsys {
namespace {

at::Generator Seeded(uint64_t seed) { return MakeRankGenerator(seed, 0, 0); }

TEST(DrawsTest, WhatDrawsNothingNotesNothing) {
  Draws draws;
  const DrawScope scope(draws);
  at::add(at::ones({2}), at::ones({2}));
  EXPECT_TRUE(draws.empty());
}

TEST(DrawsTest, EveryKindOfGeneratorGoesBackToBeforeItsFirstNumber) {
  const at::Generator named = Seeded(1), rank = Seeded(2);
  const RankGeneratorScope rank_scope(rank);
  Draws draws;
  at::Tensor first_named, first;
  {
    const DrawScope scope(draws);
    first_named = at::rand({8}, named);
    first = at::dropout(at::ones({64}), 0.5, /*train=*/true);
    at::rand({3}, named);
    at::rand({3});
  }
  draws.Restore();
  EXPECT_TRUE(at::equal(at::rand({8}, named), first_named));
  EXPECT_TRUE(
      at::equal(at::dropout(at::ones({64}), 0.5, /*train=*/true), first));
}

TEST(DrawsTest, LibtorchsOwnGeneratorIsSeenOutsideAllRankScopes) {
  Draws draws;
  at::Tensor first;
  {
    const DrawScope scope(draws);
    first = at::rand({8});
  }
  EXPECT_FALSE(draws.empty());
  draws.Restore();
  EXPECT_TRUE(at::equal(at::rand({8}), first));
}

TEST(DrawsTest, RenewedTheyGoBackToWhereTheyWereThen) {
  at::Generator named = Seeded(1);
  Draws draws;
  draws.Note(named);
  at::rand({8}, named);
  draws.Renew();
  const at::Tensor next = at::rand({8}, named);
  draws.Restore();
  EXPECT_TRUE(at::equal(at::rand({8}, named), next));
}

TEST(DrawsTest, AnOuterScopeSeesWhatAnInnerOneSeesUnlessItReachesNoFurther) {
  const at::Generator named = Seeded(1);
  Draws outer, inner;
  const DrawScope outer_scope(outer);
  {
    const DrawScope scope(inner, DrawScope::Reach::kThisOnly);
    at::rand({8}, named);
  }
  EXPECT_FALSE(inner.empty());
  EXPECT_TRUE(outer.empty());
  {
    const DrawScope scope(inner);
    at::rand({8}, named);
  }
  EXPECT_FALSE(outer.empty());
}

TEST(DrawsTest, AReplayDrawsTheSameAgainAndLeavesNoTrace) {
  const at::Generator rank = Seeded(1), other = Seeded(2), fresh = Seeded(3);
  Draws draws;
  at::Tensor first;
  {
    const RankGeneratorScope rank_scope(rank);
    const DrawScope scope(draws);
    first = at::rand({8});
  }
  const RankGeneratorScope other_scope(other);
  const at::Tensor rank_state = rank.get_state();
  const at::Tensor fresh_state = fresh.get_state();
  {
    const ReplayScope replay(rank, draws);
    EXPECT_TRUE(at::equal(at::rand({8}), first));
    at::rand({8}, fresh);  // not among the draws
  }
  EXPECT_EQ(CurrentGenerator(), other);
  EXPECT_TRUE(at::equal(rank.get_state(), rank_state));
  EXPECT_TRUE(at::equal(fresh.get_state(), fresh_state));
}

}  // namespace
}  // namespace trainsys
