#include "trainsys/zero/shard_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "trainsys/tensor/flat_layout.h"

namespace trainsys {
namespace {

void ExpectEachElementOnce(int64_t elems, int64_t elem_bytes, int ranks) {
  const auto shards = PlanShards(elems, elem_bytes, ranks);
  ASSERT_EQ(shards.size(), static_cast<size_t>(ranks));
  const int64_t most = AlignedElems((elems + ranks - 1) / ranks, elem_bytes);
  int64_t end = 0;
  for (const Shard& shard : shards) {
    EXPECT_EQ(shard.begin, end) << "no gap, no overlap";
    EXPECT_GE(shard.elems, 0);
    EXPECT_LE(shard.elems, most);
    if (shard.elems > 0) {
      EXPECT_EQ(shard.begin * elem_bytes % kTensorAlignmentBytes, 0);
    }
    if (shard.end() < elems) {
      EXPECT_EQ(shard.elems, most);
    }
    end = shard.end();
  }
  EXPECT_EQ(end, elems);
}

TEST(ShardPlanTest, EveryElementIsInOneShardWhateverTheRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 7, 8, 64}) {
    for (int64_t elems : {0, 1, ranks - 1, ranks, ranks + 1, 16, 17, 101, 1009,
                          16 * ranks, 16 * ranks + 1, 918'656}) {
      for (int64_t elem_bytes : {4, 8}) {
        SCOPED_TRACE(std::to_string(elems) + " on " + std::to_string(ranks));
        ExpectEachElementOnce(elems, elem_bytes, ranks);
      }
    }
  }
}

TEST(ShardPlanTest, MoreRanksThanAlignedPiecesLeaveTheLastRanksNothing) {
  EXPECT_EQ(Counts(PlanShards(40, 4, 8)),
            (std::vector<int64_t>{16, 16, 8, 0, 0, 0, 0, 0}));
}

TEST(ShardPlanTest, CountsAreTheShardsLengths) {
  EXPECT_EQ(Counts(PlanShards(100, 4, 3)), (std::vector<int64_t>{48, 48, 4}));
  EXPECT_EQ(Counts(PlanShards(0, 4, 2)), (std::vector<int64_t>{0, 0}));
}

TEST(ShardPlanTest, AllTheSameWhereItDividesEvenly) {
  EXPECT_EQ(Counts(PlanShards(128, 8, 4)),
            (std::vector<int64_t>{32, 32, 32, 32}));
}

}  // namespace
}  // namespace trainsys
