#include "trainsys/ddp/bucket_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/tensor/flat_layout.h"

namespace trainsys {
namespace {

constexpr Partition kPartitions[] = {Partition::kFlat, Partition::kByTensor,
                                     Partition::kBalanced};

// Parameters, cut into shards, and put into buckets in some order.
struct Case {
  std::vector<ParameterSize> sizes;
  ShardPlan plan;
  std::vector<Bucket> buckets;

  ShardedParameters Of(int rank) const {
    return {plan.offsets, plan.shards, rank};
  }
  int ranks() const { return static_cast<int>(plan.shards.size()); }
};

Case MakeCase(std::vector<ParameterSize> sizes, int ranks, Partition partition,
              std::vector<size_t> order, const BucketLimits& limits) {
  std::vector<int64_t> bytes;
  for (const ParameterSize& size : sizes) {
    bytes.push_back(size.elems * size.elem_bytes);
  }
  Case made{std::move(sizes), PlanShards(bytes, ranks, partition), {}};
  for (const Bucket& bucket : PlanBuckets(made.sizes, order, limits)) {
    made.buckets.push_back(InOrderOfShards(bucket, made.sizes, made.Of(0)));
  }
  return made;
}

int64_t ElemBytes(const Case& c, const Bucket& bucket) {
  return c.sizes[bucket.parameters[0]].elem_bytes;
}

// Each byte of the flat buffer, and of each bucket, has one owner: the same.
void ExpectEveryElementOnce(const Case& c) {
  std::vector<int> owned(static_cast<size_t>(c.plan.bytes), 0);
  for (const Bucket& bucket : c.buckets) {
    const int64_t elem_bytes = ElemBytes(c, bucket);
    int64_t begin = 0;
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const ShardedParameters sharded = c.Of(rank);
      const BucketShards cut = CutBucket(bucket, elem_bytes, sharded);
      ASSERT_EQ(
          std::accumulate(cut.counts.begin(), cut.counts.end(), int64_t{0}),
          bucket.layout.elems);
      int64_t at = begin;  // the runs fill the rank's part, in order
      for (const BucketShards::Run& run : cut.own) {
        EXPECT_EQ(run.in_bucket, at);
        EXPECT_GT(run.elems, 0);
        at += run.elems;
        const int64_t in_flat = sharded.own().begin + run.in_shard * elem_bytes;
        EXPECT_GE(run.in_shard, 0);
        ASSERT_LE(in_flat + run.elems * elem_bytes, sharded.own().end());
        for (int64_t i = 0; i < run.elems * elem_bytes; ++i) {
          ++owned[static_cast<size_t>(in_flat + i)];
        }
      }
      begin += cut.counts[static_cast<size_t>(rank)];
      EXPECT_EQ(at, begin);
    }
  }
  EXPECT_TRUE(std::all_of(owned.begin(), owned.end(),
                          [](int times) { return times == 1; }));
}

// Where an element of a bucket lies in the flat buffer, in bytes.
int64_t InFlat(const Case& c, const Bucket& bucket, int64_t element) {
  const auto after = std::upper_bound(bucket.layout.offsets.begin(),
                                      bucket.layout.offsets.end(), element);
  const auto i = static_cast<size_t>(after - bucket.layout.offsets.begin()) - 1;
  return c.plan.offsets[bucket.parameters[i]] +
         (element - bucket.layout.offsets[i]) * ElemBytes(c, bucket);
}

void ExpectRunsKeepParametersTogether(const Case& c) {
  for (const Bucket& bucket : c.buckets) {
    const int64_t elem_bytes = ElemBytes(c, bucket);
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const BucketShards cut = CutBucket(bucket, elem_bytes, c.Of(rank));
      for (const BucketShards::Run& run : cut.own) {
        for (int64_t i = 0; i < run.elems; ++i) {
          const int64_t in_flat =
              c.plan.shards[static_cast<size_t>(rank)].begin +
              (run.in_shard + i) * elem_bytes;
          ASSERT_EQ(in_flat, InFlat(c, bucket, run.in_bucket + i));
        }
      }
    }
  }
}

void ExpectOwnersCoverTheParametersOnce(const Case& c) {
  for (const Bucket& bucket : c.buckets) {
    std::vector<int> covered(static_cast<size_t>(c.plan.bytes), 0);
    int64_t until = 0;
    for (const OwnedRange& range : OwnersOf(bucket.parameters, c.plan)) {
      EXPECT_GT(range.bytes, 0);
      EXPECT_GE(range.begin, until);  // in order
      until = range.begin + range.bytes;
      const Shard& shard = c.plan.shards[static_cast<size_t>(range.owner)];
      EXPECT_GE(range.begin, shard.begin);
      ASSERT_LE(until, shard.end());
      for (int64_t i = range.begin; i < until; ++i) {
        ++covered[static_cast<size_t>(i)];
      }
    }
    for (size_t p : bucket.parameters) {
      const int64_t bytes = AlignedElems(c.plan.tensor_bytes[p], 1);
      for (int64_t i = 0; i < bytes; ++i) {
        --covered[static_cast<size_t>(c.plan.offsets[p] + i)];
      }
    }
    EXPECT_TRUE(std::all_of(covered.begin(), covered.end(),
                            [](int times) { return times == 0; }));
  }
}

Case RandomCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t n) { return random() % n; };
  std::vector<ParameterSize> sizes(1 + below(9));
  for (ParameterSize& size : sizes) {
    size.elems = static_cast<int64_t>(below(4) == 0 ? below(3) : below(200));
    size.elem_bytes = below(3) == 0 ? 8 : 4;
    size.dtype = static_cast<int>(size.elem_bytes);
  }
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  const int ranks = 1 + static_cast<int>(below(8));
  const auto cap = static_cast<int64_t>(1 + below(2000));
  return MakeCase(std::move(sizes), ranks, kPartitions[below(3)],
                  std::move(order),
                  {cap, static_cast<int64_t>(1 + below(100))});
}

TEST(BucketShardsTest, OfRandomParametersEveryElementHasOneOwner) {
  for (uint64_t seed = 0; seed < 400 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = RandomCase(seed);
    ExpectEveryElementOnce(c);
    ExpectRunsKeepParametersTogether(c);
    ExpectOwnersCoverTheParametersOnce(c);
  }
}

TEST(BucketShardsTest, OddSizesOnThreeRanksAreCoveredForEveryBucketSize) {
  for (const Partition partition : kPartitions) {
    for (const int64_t bucket_bytes : {1, 20, 64, 65, 128, 1 << 20}) {
      const Case c = MakeCase({{5, 4}, {7, 4}, {11, 4}}, 3, partition,
                              {2, 1, 0}, {bucket_bytes, bucket_bytes});
      ExpectEveryElementOnce(c);
      ExpectOwnersCoverTheParametersOnce(c);
    }
  }
}

// 16 elements are 64 bytes: flat, each rank has one of four such stretches.
TEST(BucketShardsTest, ARankWithoutAPartCountsZero) {
  const Case c = MakeCase({{16, 4}, {32, 4}, {16, 4}}, 4, Partition::kFlat,
                          {2, 1, 0}, {1, 1});
  ASSERT_EQ(c.buckets.size(), 3);
  EXPECT_EQ(CutBucket(c.buckets[0], 4, c.Of(0)).counts,
            (std::vector<int64_t>{0, 0, 0, 16}));
  EXPECT_TRUE(CutBucket(c.buckets[0], 4, c.Of(0)).own.empty());
  EXPECT_EQ(CutBucket(c.buckets[1], 4, c.Of(2)).counts,
            (std::vector<int64_t>{0, 16, 16, 0}));
  EXPECT_EQ(CutBucket(c.buckets[1], 4, c.Of(2)).own.at(0).in_bucket, 16);
}

TEST(BucketShardsTest, NeighboursOfOneOwnerAreOneStretch) {
  const Case c = MakeCase({{16, 4}, {16, 4}, {16, 4}, {16, 4}}, 2,
                          Partition::kFlat, {3, 2, 1, 0}, {1 << 20, 1 << 20});
  const std::vector<OwnedRange> all = OwnersOf(c.buckets[0].parameters, c.plan);
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[1].owner, 1);
  EXPECT_EQ(all[1].begin, 128);
  EXPECT_EQ(all[1].bytes, 128);
  const std::vector<size_t> apart{0, 3};
  EXPECT_EQ(OwnersOf(apart, c.plan).size(), 2);
  EXPECT_EQ(CutBucket(c.buckets[0], 4, c.Of(1)).own.size(), 1);
}

TEST(BucketShardsTest, AnEmptyParameterBelongsToEveryRankAndToNoStretch) {
  const Case c = MakeCase({{0, 4}, {16, 4}, {16, 4}}, 2, Partition::kFlat,
                          {2, 1, 0}, {1, 1});
  const std::vector<size_t> empty{0};
  EXPECT_TRUE(OwnersOf(empty, c.plan).empty());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(IsWhollyOwn(0, 0, c.Of(rank)));
    EXPECT_EQ(IsWhollyOwn(1, 64, c.Of(rank)), rank == 0);
  }
}

TEST(BucketShardsTest, AParameterAcrossABorderIsNoRanksOwn) {
  const Case c =
      MakeCase({{48, 4}, {16, 4}}, 2, Partition::kFlat, {1, 0}, {1, 1});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(IsWhollyOwn(0, 192, c.Of(rank)));
    EXPECT_EQ(IsWhollyOwn(1, 64, c.Of(rank)), rank == 1);
  }
}

}  // namespace
}  // namespace trainsys
