#include "trainsys/timeline/bucket_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ExpectTimes(const BucketTime& time, double ready_us, double begin_us,
                 double end_us) {
  EXPECT_DOUBLE_EQ(time.ready_us, ready_us);
  EXPECT_DOUBLE_EQ(time.begin_us, begin_us);
  EXPECT_DOUBLE_EQ(time.end_us, end_us);
}

TEST(ReadyBucketsTest, ABucketIsReadyWithItsLastGradientAndAsLongAsItsLayout) {
  // In f64: 3 elements take 64 bytes, 9 take 128.
  const std::vector<ParameterSize> sizes{{9, 8}, {3, 8}, {8, 8}};
  const auto plan = PlanBuckets(sizes, {192, 64});
  ASSERT_EQ(plan.size(), 2);  // parameter 2; then 1 and 0
  const std::vector<double> ready_us{70, 80, 50};
  const auto buckets = ReadyBuckets(plan, ready_us, 8);
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[0].ready_us, 50);
  EXPECT_EQ(buckets[0].bytes, 64);
  EXPECT_EQ(buckets[1].ready_us, 80);
  EXPECT_EQ(buckets[1].bytes, 192);
}

TEST(ReadyBucketsTest, AParameterWithoutATimeIsRefused) {
  const std::vector<ParameterSize> sizes{{9, 4}, {3, 4}};
  const auto plan = PlanBuckets(sizes, {});
  for (const std::vector<double>& ready_us :
       {std::vector<double>{1},
        {1, -1},
        {1, std::numeric_limits<double>::quiet_NaN()}}) {
    EXPECT_THROW(ReadyBuckets(plan, ready_us, 4), collectives::InvalidArgument);
  }
}

TEST(TimelineTest, ABucketWaitsForTheOneBeforeAndTheChannelForABucket) {
  const std::vector<ReadyBucket> buckets{{10, 200}, {15, 100}, {90, 100}};
  // 5 us and 0.1 us a byte: 25, 15 and 15 us.
  const BucketTimeline timeline = TimelineOf(buckets, {5, 10}, 95);
  ASSERT_EQ(timeline.buckets.size(), 3);
  ExpectTimes(timeline.buckets[0], 10, 10, 35);
  ExpectTimes(timeline.buckets[1], 15, 35, 50);
  ExpectTimes(timeline.buckets[2], 90, 90, 105);
  EXPECT_DOUBLE_EQ(timeline.exposed_us, 15);
  EXPECT_DOUBLE_EQ(timeline.total_us, 105);
  EXPECT_DOUBLE_EQ(NoOverlapUs(buckets, {5, 10}, 95), 95 + 5 + 40);
}

TEST(TimelineTest, ABacklogShowsAfterTheLastGradient) {
  const std::vector<ReadyBucket> buckets{{10, 1000}, {20, 1000}, {30, 1000}};
  const BucketTimeline timeline = TimelineOf(buckets, {0, 10}, 40);
  ExpectTimes(timeline.buckets[2], 30, 210, 310);
  EXPECT_DOUBLE_EQ(timeline.exposed_us, 280);
  EXPECT_DOUBLE_EQ(timeline.total_us, 310);
}

TEST(TimelineTest, ABackwardThatOutlastsItsBucketsIsTheTotal) {
  const std::vector<ReadyBucket> buckets{{10, 100}, {40, 100}};
  const BucketTimeline timeline = TimelineOf(buckets, {0, 10}, 80);
  EXPECT_DOUBLE_EQ(timeline.exposed_us, 10);
  EXPECT_DOUBLE_EQ(timeline.total_us, 80);
}

TEST(TimelineTest, WithoutBucketsThereIsBackwardOnly) {
  const BucketTimeline timeline = TimelineOf({}, {5, 10}, 80);
  EXPECT_TRUE(timeline.buckets.empty());
  EXPECT_EQ(timeline.exposed_us, 0);
  EXPECT_EQ(timeline.total_us, 80);
}

TEST(TimelineTest, OneBucketOfAllIsAsWithoutOverlap) {
  const std::vector<ReadyBucket> buckets{{80, 5000}};
  const Link link{7, 25};
  EXPECT_DOUBLE_EQ(TimelineOf(buckets, link, 80).total_us, 80 + 7 + 200);
  EXPECT_DOUBLE_EQ(NoOverlapUs(buckets, link, 80), 80 + 7 + 200);
}

// Random backwards: what holds for all of them.
class AnyBackwardTest : public testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    std::mt19937 random(GetParam());
    const auto draw = [&random](int most) {
      return std::uniform_int_distribution<>(0, most)(random);
    };
    double now_us = 0;
    for (int n = 1 + draw(30); n > 0; --n) {
      now_us += draw(100);
      buckets_.push_back({now_us, draw(10'000)});
    }
    backward_us_ = now_us + draw(20);
    link_ = {static_cast<double>(draw(50)), 1.0 + draw(500)};
  }

  double TotalUs(const Link& link) const {
    return TimelineOf(buckets_, link, backward_us_).total_us;
  }
  double SumOfTransfersUs() const {
    double sum_us = 0;
    for (const ReadyBucket& b : buckets_) sum_us += link_.TimeUs(b.bytes);
    return sum_us;
  }

  std::vector<ReadyBucket> buckets_;
  double backward_us_ = 0;
  Link link_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, AnyBackwardTest, testing::Range(0u, 20u));

TEST_P(AnyBackwardTest, TakesAsLongAsBackwardAndAsTheTransfersAtLeast) {
  EXPECT_GE(TotalUs(link_), backward_us_);
  EXPECT_GE(TotalUs(link_), buckets_[0].ready_us + SumOfTransfersUs() - 1e-6);
  EXPECT_LE(TotalUs(link_), backward_us_ + SumOfTransfersUs());
}

TEST_P(AnyBackwardTest, BucketsFollowOneAnother) {
  const BucketTimeline timeline = TimelineOf(buckets_, link_, backward_us_);
  double free_us = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const BucketTime& time = timeline.buckets[b];
    EXPECT_EQ(time.begin_us, std::max(time.ready_us, free_us));
    EXPECT_DOUBLE_EQ(time.end_us - time.begin_us + time.begin_us,
                     time.begin_us + link_.TimeUs(buckets_[b].bytes));
    free_us = time.end_us;
  }
  EXPECT_DOUBLE_EQ(timeline.exposed_us, free_us - buckets_.back().ready_us);
}

TEST_P(AnyBackwardTest, AFreeLinkCostsNothing) {
  EXPECT_EQ(TotalUs({0, kInfinity}), backward_us_);
}

// All are ready at once: nothing hides.
TEST_P(AnyBackwardTest, LatencyAloneIsPaidOnceABucketAtTheEnd) {
  for (ReadyBucket& b : buckets_) b.ready_us = backward_us_;
  EXPECT_DOUBLE_EQ(TotalUs({25, kInfinity}),
                   backward_us_ + 25 * static_cast<double>(buckets_.size()));
}

TEST_P(AnyBackwardTest, ABetterLinkIsNeverSlower) {
  const Link better{link_.latency_us / 2, link_.bytes_per_us * 2};
  EXPECT_LE(TotalUs(better), TotalUs(link_));
}

TEST_P(AnyBackwardTest, WithoutLatencyOverlapIsNeverWorse) {
  const Link link{0, link_.bytes_per_us};
  EXPECT_LE(TotalUs(link),
            NoOverlapUs(buckets_, link, backward_us_) * (1 + 1e-12));
}

}  // namespace
}  // namespace trainsys
