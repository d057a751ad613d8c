// Which backwards are synchronized, and which only add up on their rank.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/ddp/exact_loss.h"
#include "tests/ddp/exact_rank.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

TEST(NoSyncTest, AroundForwardAndBackwardItSendsNothing) {
  OnRanks(3, [](ExactRank& rank) {
    const size_t before = rank.NumRecords();
    const NoSync quiet(rank.ddp);
    rank.ddp.BeginForward();
    rank.Loss().backward();
    EXPECT_EQ(rank.NumRecords(), before);
    for (const at::Tensor& p : rank.parameters) {
      EXPECT_TRUE(EqualBits({p.grad()}, {Slope(p, rank.comm.rank(), 0)}));
    }
  });
}

TEST(NoSyncTest, AroundBackwardAloneItChangesNothing) {
  OnRanks(3, [](ExactRank& rank) {
    const size_t before = rank.NumRecords();
    rank.ddp.BeginForward();
    const at::Tensor loss = rank.Loss();
    {
      const NoSync too_late(rank.ddp);
      loss.backward();
    }
    EXPECT_EQ(rank.NumRecords() - before, rank.ddp.buckets().size());
    rank.ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(3, {0})));
  });
}

TEST(NoSyncTest, AroundForwardAloneItIsEnough) {
  OnRanks(2, [](ExactRank& rank) {
    const size_t before = rank.NumRecords();
    at::Tensor loss;
    {
      const NoSync quiet(rank.ddp);
      rank.ddp.BeginForward();
      loss = rank.Loss();
    }
    loss.backward();
    EXPECT_EQ(rank.NumRecords(), before);
  });
}

TEST(NoSyncTest, AnInnerOneEndsNothing) {
  OnRanks(2, [](ExactRank& rank) {
    const size_t before = rank.NumRecords();
    std::optional<NoSync> outer(rank.ddp);
    { const NoSync inner(rank.ddp); }
    rank.ddp.BeginForward();
    rank.Loss(0).backward();
    EXPECT_EQ(rank.NumRecords(), before);
    outer.reset();
    rank.ddp.BeginForward();
    rank.Loss(1).backward();
    rank.ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(2, {0, 1})));
  });
}

TEST(NoSyncTest, TwoForwardsThenTwoBackwardsAverageTheSumOnTheLast) {
  OnRanks(3, [](ExactRank& rank) {
    at::Tensor first, second;
    {
      const NoSync quiet(rank.ddp);
      rank.ddp.BeginForward();
      first = rank.Loss(0);
      second = rank.Loss(1);
      first.backward();
    }
    rank.ddp.BeginForward();  // of nothing: what comes is synchronized
    second.backward();
    rank.ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(3, {0, 1})));
  });
}

TEST(NoSyncTest, TwoBackwardsOfOneForwardMayBeTheVeryFirstThing) {
  OnRanks(3, [](ExactRank& rank) {
    {
      const NoSync quiet(rank.ddp);
      rank.ddp.BeginForward();
      const at::Tensor loss = rank.Loss(0);
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
    }
    for (const std::vector<int>& sum : {std::vector{0, 0, 1}, {2}}) {
      rank.ddp.BeginForward();
      rank.Loss(sum.back()).backward();
      rank.ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(3, sum)));
      rank.ddp.ZeroGrad();
    }
  });
}

TEST(NoSyncTest, AnyNumberOfMicroStepsHasTheBitsOfReferenceA) {
  for (const int ranks : {1, 2, 3, 4}) {
    OnRanks(ranks, [ranks](ExactRank& rank) {
      std::vector<int> micro_steps;
      for (int m = 0; m < 5; ++m) {
        micro_steps.push_back(m);
        rank.ddp.ZeroGrad();
        for (int i : micro_steps) {
          std::optional<NoSync> quiet;
          if (i < m) quiet.emplace(rank.ddp);
          rank.ddp.BeginForward();
          rank.Loss(i).backward();
        }
        rank.ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters),
                              Expected(ranks, micro_steps)));
      }
    });
  }
}

}  // namespace
}  // namespace trainsys
