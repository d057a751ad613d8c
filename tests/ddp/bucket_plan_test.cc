#include "trainsys/ddp/bucket_plan.h"

#include <gtest/gtest.h>

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

// What each plan must be, whatever the sizes.
void ExpectIsAPlan(const Sizes& sizes, int64_t cap) {
  const std::vector<Bucket> buckets = PlanBuckets(sizes, cap);
  size_t next = sizes.size();
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    ASSERT_FALSE(bucket.parameters.empty());
    std::vector<int64_t> elems;
    for (size_t p : bucket.parameters) {
      EXPECT_EQ(p, --next) << "each once, in backward order";
      EXPECT_EQ(sizes[p].dtype, sizes[bucket.parameters[0]].dtype);
      elems.push_back(sizes[p].elems);
    }
    const FlatLayout layout =
        LayOut(elems, sizes[bucket.parameters[0]].elem_bytes);
    EXPECT_EQ(bucket.layout.offsets, layout.offsets);
    EXPECT_EQ(bucket.layout.elems, layout.elems);
    const int64_t bytes = Bytes(sizes, bucket);
    EXPECT_TRUE(bytes <= cap || bucket.parameters.size() == 1);
    if (b + 1 == buckets.size()) continue;
    const ParameterSize& following = sizes[buckets[b + 1].parameters[0]];
    EXPECT_TRUE(bytes + Bytes(following) > cap ||
                following.dtype != sizes[bucket.parameters[0]].dtype)
        << "bucket " << b << " was closed too early";
  }
  EXPECT_EQ(next, 0);
}

TEST(BucketPlanTest, AnyParametersFallIntoFullBucketsInBackwardOrder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Sizes sizes = RandomSizes(random);
    for (int64_t cap : {1, 64, 100, 1000, 4096, 1 << 20}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", cap " +
                   std::to_string(cap));
      ExpectIsAPlan(sizes, cap);
    }
  }
}

TEST(BucketPlanTest, PaddingCountsTowardsTheCap) {
  const auto buckets = PlanBuckets(Floats({1, 1, 1}), 128);
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[0].parameters, (Indices{2, 1}));
  EXPECT_EQ(buckets[1].parameters, (Indices{0}));
}

TEST(BucketPlanTest, AParameterLargerThanTheCapHasABucketOfItsOwn) {
  const auto buckets = PlanBuckets(Floats({16, 1000, 16, 16}), 128);
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_EQ(buckets[0].parameters, (Indices{3, 2}));
  EXPECT_EQ(buckets[1].parameters, (Indices{1}));
  EXPECT_EQ(buckets[2].parameters, (Indices{0}));
}

TEST(BucketPlanTest, AChangeOfDTypeClosesABucket) {
  const Sizes sizes{{8, 4, kF32}, {8, 8, kF64}, {8, 8, kF64}, {8, 4, kF32}};
  const auto buckets = PlanBuckets(sizes, 1 << 20);
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_EQ(buckets[0].parameters, (Indices{3}));
  EXPECT_EQ(buckets[1].parameters, (Indices{2, 1}));
  EXPECT_EQ(buckets[2].parameters, (Indices{0}));
}

TEST(BucketPlanTest, ACapOfOneByteGivesEachParameterItsOwnBucket) {
  const auto buckets = PlanBuckets(Floats({3, 100, 7}), 1);
  ASSERT_EQ(buckets.size(), 3);
  for (size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(buckets[b].parameters, (Indices{2 - b}));
  }
}

TEST(BucketPlanTest, AHugeCapGivesOneBucket) {
  const auto buckets = PlanBuckets(Floats({3, 100, 7}), int64_t{1} << 62);
  ASSERT_EQ(buckets.size(), 1);
  EXPECT_EQ(buckets[0].layout.offsets, (std::vector<int64_t>{0, 16, 128}));
  EXPECT_EQ(buckets[0].layout.elems, 144);
}

TEST(BucketPlanTest, CapsOfZeroAndBelowAreRefused) {
  for (int64_t cap : {0, -1}) {
    EXPECT_THROW(PlanBuckets(Floats({3}), cap), collectives::InvalidArgument);
  }
}

TEST(BucketPlanTest, NoParametersGiveNoBucket) {
  EXPECT_TRUE(PlanBuckets({}, 64).empty());
}

}  // namespace
}  // namespace trainsys
