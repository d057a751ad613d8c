#include "trainsys/ddp/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using Indices = std::vector<size_t>;
using Sizes = std::vector<ParameterSize>;

constexpr int kF32 = 0;
constexpr int kF64 = 1;

Sizes Floats(const std::vector<int64_t>& elems) {
  Sizes sizes;
  for (int64_t n : elems) sizes.push_back({n, 4, kF32});
  return sizes;
}

int64_t Bytes(const ParameterSize& size) {
  return AlignedElems(size.elems, size.elem_bytes) * size.elem_bytes;
}

int64_t Bytes(const Sizes& sizes, const Bucket& bucket) {
  int64_t bytes = 0;
  for (size_t p : bucket.parameters) bytes += Bytes(sizes[p]);
  return bytes;
}

Sizes RandomSizes(std::mt19937& random) {
  Sizes sizes(1 + random() % 20);
  for (ParameterSize& size : sizes) {
    const bool is_double = random() % 4 == 0;
    const auto elems =
        static_cast<int64_t>(random() % 3 ? random() % 100 : random() % 5000);
    size = {elems, is_double ? 8 : 4, is_double ? kF64 : kF32};
  }
  return sizes;
}

// One size for all buckets.
BucketLimits Cap(int64_t bytes) { return {bytes, bytes}; }

// What each plan must be, whatever the sizes.
void ExpectIsAPlan(const Sizes& sizes, const Indices& order,
                   const BucketLimits& limits) {
  const std::vector<Bucket> buckets = PlanBuckets(sizes, order, limits);
  std::map<int, Indices> in_order, in_buckets;  // of each dtype
  for (size_t p : order) in_order[sizes[p].dtype].push_back(p);
  std::map<int, int64_t> limit;  // of the dtype's next bucket
  std::map<int, const Bucket*> before;
  size_t last_position = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    ASSERT_FALSE(bucket.parameters.empty());
    const ParameterSize& first = sizes[bucket.parameters[0]];
    std::vector<int64_t> elems;
    for (size_t p : bucket.parameters) {
      EXPECT_EQ(sizes[p].dtype, first.dtype);
      in_buckets[first.dtype].push_back(p);
      elems.push_back(sizes[p].elems);
    }
    const FlatLayout layout = LayOut(elems, first.elem_bytes);
    EXPECT_EQ(bucket.layout.offsets, layout.offsets);
    EXPECT_EQ(bucket.layout.elems, layout.elems);
    const bool is_first = !before.contains(first.dtype);
    if (is_first) {
      limit[first.dtype] =
          std::min(limits.first_bucket_bytes, limits.bucket_bytes);
    } else {
      EXPECT_GT(Bytes(sizes, *before[first.dtype]) + Bytes(first),
                limit[first.dtype])
          << "the bucket before " << b << " was closed too early";
      limit[first.dtype] = limits.bucket_bytes;
    }
    EXPECT_TRUE(Bytes(sizes, bucket) <= limit[first.dtype] ||
                bucket.parameters.size() == 1);
    before[first.dtype] = &bucket;
    const auto position = static_cast<size_t>(
        std::find(order.begin(), order.end(), bucket.parameters.back()) -
        order.begin());
    EXPECT_TRUE(b == 0 || position > last_position) << "they get full in order";
    last_position = position;
  }
  EXPECT_EQ(in_buckets, in_order) << "each once, in order";
}

TEST(BucketPlanTest, AnyParametersFallIntoFullBucketsInAnyOrder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Sizes sizes = RandomSizes(random);
    Indices order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    order.resize(1 + random() % order.size());  // some are frozen
    for (int64_t cap : {1, 64, 100, 1000, 4096, 1 << 20}) {
      for (int64_t first : {1, 64, 1000, 1 << 20}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", limits " +
                     std::to_string(cap) + ", " + std::to_string(first));
        ExpectIsAPlan(sizes, order, {cap, first});
      }
    }
  }
}

TEST(BucketPlanTest, WithoutAnOrderItIsTheReverseOfRegistration) {
  const auto buckets = PlanBuckets(Floats({16, 16, 16}), Cap(128));
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[0].parameters, (Indices{2, 1}));
  EXPECT_EQ(buckets[1].parameters, (Indices{0}));
}

TEST(BucketPlanTest, TheFirstBucketOfEachDTypeIsSmaller) {
  Sizes sizes = Floats({16, 16, 16, 16, 16, 16});
  sizes[0].dtype = sizes[1].dtype = kF64;
  sizes[0].elem_bytes = sizes[1].elem_bytes = 8;
  const auto buckets =
      PlanBuckets(sizes, {.bucket_bytes = 1 << 20, .first_bucket_bytes = 128});
  ASSERT_EQ(buckets.size(), 4);
  EXPECT_EQ(buckets[0].parameters, (Indices{5, 4}));
  EXPECT_EQ(buckets[1].parameters, (Indices{3, 2}));
  EXPECT_EQ(buckets[2].parameters, (Indices{1}));
  EXPECT_EQ(buckets[3].parameters, (Indices{0}));
}

TEST(BucketPlanTest, PaddingCountsTowardsTheCap) {
  const auto buckets = PlanBuckets(Floats({1, 1, 1}), Cap(128));
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[0].parameters, (Indices{2, 1}));
  EXPECT_EQ(buckets[1].parameters, (Indices{0}));
}

TEST(BucketPlanTest, AParameterLargerThanTheCapHasABucketOfItsOwn) {
  const auto buckets = PlanBuckets(Floats({16, 1000, 16, 16}), Cap(128));
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_EQ(buckets[0].parameters, (Indices{3, 2}));
  EXPECT_EQ(buckets[1].parameters, (Indices{1}));
  EXPECT_EQ(buckets[2].parameters, (Indices{0}));
}

TEST(BucketPlanTest, DTypesThatTakeTurnsFillOneBucketEach) {
  const Sizes sizes{{8, 4, kF32}, {8, 8, kF64}, {8, 8, kF64}, {8, 4, kF32}};
  const auto buckets = PlanBuckets(sizes, Cap(1 << 20));
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[0].parameters, (Indices{2, 1})) << "full first";
  EXPECT_EQ(buckets[1].parameters, (Indices{3, 0}));
}

TEST(BucketPlanTest, ACapOfOneByteGivesEachParameterItsOwnBucket) {
  const auto buckets = PlanBuckets(Floats({3, 100, 7}), Cap(1));
  ASSERT_EQ(buckets.size(), 3);
  for (size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(buckets[b].parameters, (Indices{2 - b}));
  }
}

TEST(BucketPlanTest, AHugeCapGivesOneBucket) {
  const auto buckets = PlanBuckets(Floats({3, 100, 7}), Cap(int64_t{1} << 40));
  ASSERT_EQ(buckets.size(), 1);
  EXPECT_EQ(buckets[0].layout.offsets, (std::vector<int64_t>{0, 16, 128}));
  EXPECT_EQ(buckets[0].layout.elems, 144);
}

TEST(BucketPlanTest, LimitsThatNobodyCanMeanAreRefused) {
  for (int64_t bytes : {int64_t{0}, int64_t{-1}, (int64_t{1} << 40) + 1,
                        std::numeric_limits<int64_t>::max(),
                        std::numeric_limits<int64_t>::min()}) {
    EXPECT_THROW(PlanBuckets(Floats({3}), {.bucket_bytes = bytes}),
                 collectives::InvalidArgument);
    EXPECT_THROW(PlanBuckets(Floats({3}), {.first_bucket_bytes = bytes}),
                 collectives::InvalidArgument);
  }
}

TEST(BucketPlanTest, NoParametersGiveNoBucket) {
  EXPECT_TRUE(PlanBuckets({}, Cap(64)).empty());
}

}  // namespace
}  // namespace trainsys
