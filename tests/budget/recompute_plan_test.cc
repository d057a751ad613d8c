#include "trainsys/budget/recompute_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

constexpr BlockRecompute kNone = BlockRecompute::kNone;
constexpr BlockRecompute kSelective = BlockRecompute::kSelective;
constexpr BlockRecompute kFull = BlockRecompute::kFull;

TEST(RecomputePlanTest, NoneSelectiveAndFullAreTheSameForEveryBlock) {
  EXPECT_EQ(PlanOfPolicy("none", 3), RecomputePlan(3, kNone));
  EXPECT_EQ(PlanOfPolicy("selective", 2), RecomputePlan(2, kSelective));
  EXPECT_EQ(PlanOfPolicy("full", 1), RecomputePlan(1, kFull));
}

TEST(RecomputePlanTest, EveryKthIsTheLastOfEachKBlocks) {
  EXPECT_EQ(PlanOfPolicy("every-1", 3), RecomputePlan(3, kFull));
  EXPECT_EQ(PlanOfPolicy("every-2", 5),
            (RecomputePlan{kNone, kFull, kNone, kFull, kNone}));
  EXPECT_EQ(PlanOfPolicy("every-3", 3), (RecomputePlan{kNone, kNone, kFull}));
  EXPECT_EQ(PlanOfPolicy("every-4", 3), RecomputePlan(3, kNone));
  EXPECT_EQ(PlanOfPolicy("every-9223372036854775807", 3),
            RecomputePlan(3, kNone));
}

TEST(RecomputePlanTest, AnUnknownPolicyIsOneClearLine) {
  for (const char* policy :
       {"", "Full", "every", "every-", "every-0", "every--1", "every-+2",
        "every-2x", "every- 2", "every-9223372036854775808", "every-1.5"}) {
    try {
      PlanOfPolicy(policy, 3);
      FAIL() << "accepted " << policy;
    } catch (const collectives::InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("give none, selective, full or every-K"));
    }
  }
  EXPECT_THROW(PlanOfPolicy("full", 0), collectives::InvalidArgument);
}

TEST(RecomputePlanTest, DescribesRunsOfEqualBlocks) {
  EXPECT_EQ(Describe({}), "");
  EXPECT_EQ(Describe({kNone}), "none");
  EXPECT_EQ(Describe(RecomputePlan(4, kFull)), "full");
  EXPECT_EQ(Describe({kFull, kFull, kSelective, kNone, kNone}),
            "blocks 0-1 full, 2 selective, 3-4 none");
}

}  // namespace
}  // namespace trainsys
