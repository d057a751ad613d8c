#include "trainsys/measure/bucket_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/measure/tiny_job.h"
#include "tests/train/ranks_apart.h"
#include "trainsys/measure/link_sweep.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kKiB = 1024;

BucketSweepOptions TinySweep() {
  BucketSweepOptions options;
  options.job = TinyJob();
  options.ranks = {2, 3};
  options.bucket_bytes = {1, 16 * kKiB, 16 << 20};
  options.turns = 3;
  options.link_turns = 3;
  return options;
}

BucketFinding Measure(const BucketSweepOptions& options,
                      const MeasureProgress& progress = {}) {
  return MeasureBuckets(collectives::RunnerHere(), options, TinyStories(),
                        progress);
}

void ExpectTime(double ms) {
  EXPECT_TRUE(std::isfinite(ms));
  EXPECT_GT(ms, 0);
}

void ExpectSpread(const Quartiles& ms) {
  ExpectTime(ms.low);
  ExpectTime(ms.high);
  EXPECT_LE(ms.low, ms.median);
  EXPECT_LE(ms.median, ms.high);
}

void ExpectSweep(const BucketSweep& sweep) {
  EXPECT_EQ(sweep.turns, 3);
  ExpectSpread(sweep.alone_ms);
  ExpectSpread(sweep.no_overlap_ms);
  for (const double ms : {sweep.forward_ms, sweep.backward_ms,
                          sweep.optimizer_ms, sweep.model_no_overlap_ms}) {
    ExpectTime(ms);
  }
  std::vector<int64_t> sizes, buckets;
  for (const BucketPoint& point : sweep.points) {
    sizes.push_back(point.bucket_bytes);
    buckets.push_back(point.num_buckets);
    ExpectSpread(point.step_ms);
    ExpectTime(point.exposed_ms);
    ExpectTime(point.model_exposed_ms);
    EXPECT_GE(point.model_step_ms, sweep.alone_ms.median - 1e-9);
    EXPECT_LE(point.model_exposed_ms, point.model_step_ms);
  }
  EXPECT_THAT(sizes, ElementsAre(1, 16 * kKiB, 16 << 20));
  // One for each parameter; 20 KiB of embedding, 20 KiB of output layer and 12
  // of each block, so that four come to more than 16 together; one.
  EXPECT_EQ(buckets[0], 2 + 1 + 2 * 9);
  EXPECT_GT(buckets[1], 3);
  EXPECT_LT(buckets[1], buckets[0]);
  EXPECT_EQ(buckets[2], 1);
}

TEST(MeasureBucketsTest, EverySizeHasItsFiguresForEveryNumberOfRanks) {
  const BucketFinding finding = Measure(TinySweep());
  EXPECT_EQ(finding.model.context, kTinyContext);
  EXPECT_EQ(finding.model.layers, 2);
  EXPECT_EQ(finding.zero, 1);
  EXPECT_EQ(finding.recompute, "full");
  ASSERT_EQ(finding.sweeps.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const BucketSweep& sweep = finding.sweeps[i];
    SCOPED_TRACE(sweep.ranks);
    EXPECT_EQ(sweep.ranks, i == 0 ? 2 : 3);
    ExpectSweep(sweep);
    std::vector<int64_t> sizes;
    for (const LinkSample& sample : sweep.samples) {
      sizes.push_back(sample.bytes);
      ExpectTime(sample.us);
    }
    EXPECT_EQ(sizes, LinkSizes(sizes.back()));
    // All gradients, padding included.
    EXPECT_GE(sizes.back(), 4 * finding.model.parameters);
    EXPECT_LT(sizes.back(), 5 * finding.model.parameters);
    EXPECT_GE(sweep.link.latency_us, 0);
    EXPECT_GT(sweep.link.bytes_per_us, 0);
  }
}

TEST(MeasureBucketsTest, TheFirstBucketIsAsLargeAsTheOthers) {
  BucketSweepOptions options = TinySweep();
  options.ranks = {2};
  options.turns = options.link_turns = 1;
  options.bucket_bytes = {16 << 20};
  // More than the 1 MiB that BucketedDDP gives the first bucket by default.
  options.job.model = {.dim = 320, .layers = 1, .heads = 2, .ffn = 16};
  const BucketFinding finding = Measure(options);
  EXPECT_GT(finding.sweeps[0].samples.back().bytes, 2 << 20);
  EXPECT_EQ(finding.sweeps[0].points[0].num_buckets, 1);
}

TEST(MeasureBucketsTest, RanksWithClocksOfTheirOwnAreMeasuredAsWell) {
  BucketSweepOptions options = TinySweep();
  options.has_one_clock = false;
  for (const BucketSweep& sweep : Measure(options).sweeps) ExpectSweep(sweep);
}

TEST(MeasureBucketsTest, RanksApartAgreeAndTheFirstHasTheFigures) {
  BucketSweepOptions options = TinySweep();
  options.has_one_clock = false;
  const auto findings =
      RanksApart(3).RunPrograms<BucketFinding>([&](auto& runner) {
        return MeasureBuckets(runner, options, TinyStories(), {});
      });
  ASSERT_EQ(findings[0].sweeps.size(), 2);
  for (const BucketSweep& sweep : findings[0].sweeps) ExpectSweep(sweep);
  EXPECT_TRUE(findings[1].sweeps.empty());
  EXPECT_TRUE(findings[2].sweeps.empty());
}

TEST(MeasureBucketsTest, ProgressCountsTheStepsOfAllRanks) {
  std::vector<int64_t> seen;
  std::set<std::string> details;
  const BucketSweepOptions options = TinySweep();
  // 5 variants, 3 warm-ups and 3 turns; then all-reduces alone, one warm-up.
  const int parts = 5 * 6 + 1 + options.link_turns;
  Measure(options, [&](int64_t done, int64_t all, const std::string& detail) {
    EXPECT_EQ(all, (2 + 3) * parts);
    if (!seen.empty()) {
      EXPECT_GT(done, seen.back());
    }
    seen.push_back(done);
    details.insert(detail);
  });
  EXPECT_EQ(seen.size(), 2 * parts);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), (2 + 3) * parts - 3);
  EXPECT_THAT(details,
              ElementsAre("2 ranks, all-reduces alone", "2 ranks, turn 1 of 3",
                          "2 ranks, turn 2 of 3", "2 ranks, turn 3 of 3",
                          "2 ranks, warm-up", "3 ranks, all-reduces alone",
                          "3 ranks, turn 1 of 3", "3 ranks, turn 2 of 3",
                          "3 ranks, turn 3 of 3", "3 ranks, warm-up"));
}

TEST(MeasureBucketsTest, AnInterruptEndsItBeforeTheNextStep) {
  const InterruptScope scope;
  int64_t shown = 0;
  const auto interrupt = [&](int64_t, int64_t, const std::string&) {
    if (++shown == 4) std::raise(SIGTERM);
  };
  try {
    Measure(TinySweep(), interrupt);
    FAIL() << "it went on";
  } catch (const Interrupted& e) {
    EXPECT_EQ(e.signal(), SIGTERM);
  }
  EXPECT_EQ(shown, 4);
}

// Also the program whose rank has no part in the run that was interrupted.
TEST(MeasureBucketsTest, AnInterruptOfOneRankApartEndsAllPrograms) {
  const InterruptScope scope;
  const auto interrupt = [](int64_t done, int64_t, const std::string&) {
    if (done == 8) std::raise(SIGTERM);
  };
  const auto signals = RanksApart(3).RunPrograms<int>([&](auto& runner) {
    try {
      MeasureBuckets(runner, TinySweep(), TinyStories(), interrupt);
    } catch (const Interrupted& e) {
      return e.signal();
    }
    return 0;
  });
  EXPECT_THAT(signals, ElementsAre(SIGTERM, SIGTERM, SIGTERM));
}

TEST(MeasureBucketsTest, OptionsThatNoSweepCanHaveAreRefused) {
  BucketSweepOptions options = TinySweep();
  options.turns = 0;
  EXPECT_THROW(Measure(options), collectives::InvalidArgument);
  options = TinySweep();
  options.ranks = {};
  EXPECT_THROW(Measure(options), collectives::InvalidArgument);
  options = TinySweep();
  options.job.recompute = "most";
  EXPECT_THROW(Measure(options), collectives::InvalidArgument);
}

TEST(SweptBucketSizesTest, ArePowersOfTwo) {
  const std::vector<int64_t> sizes = SweptBucketSizes();
  ASSERT_EQ(sizes.size(), 11);
  EXPECT_EQ(sizes.front(), 16 * kKiB);
  EXPECT_EQ(sizes.back(), 16 << 20);
}

}  // namespace
}  // namespace trainsys
