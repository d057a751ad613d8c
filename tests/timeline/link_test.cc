#include "trainsys/timeline/link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using Samples = std::vector<LinkSample>;

// 4 KiB to 16 MiB.
Samples SamplesOf(const Link& link) {
  Samples samples;
  for (int64_t bytes = 4 << 10; bytes <= 16 << 20; bytes *= 2) {
    samples.push_back({bytes, link.TimeUs(bytes)});
  }
  return samples;
}

// What FitLink makes least.
double SquaredError(const Link& link, const Samples& samples) {
  double sum = 0;
  for (const LinkSample& sample : samples) {
    sum += std::pow(link.TimeUs(sample.bytes) / sample.us - 1, 2);
  }
  return sum;
}

TEST(LinkTest, ACollectiveTakesItsLatencyAndItsBytes) {
  const Link link{30, 2000};
  EXPECT_EQ(link.TimeUs(0), 30);
  EXPECT_EQ(link.TimeUs(10'000), 35);
}

TEST(FitLinkTest, TimesOfALinkGiveThatLink) {
  for (const Link& link :
       {Link{20, 5000}, Link{0.5, 100'000}, Link{3000, 12.5}, Link{0, 400}}) {
    const Samples samples = SamplesOf(link);
    const Link fitted = FitLink(samples);
    EXPECT_NEAR(fitted.latency_us, link.latency_us,
                1e-9 * link.TimeUs(4 << 10));
    EXPECT_NEAR(fitted.bytes_per_us / link.bytes_per_us, 1, 1e-9);
    EXPECT_LT(WorstFitError(fitted, samples), 1e-9);
  }
}

TEST(FitLinkTest, TwoSizesAreMetExactlyAndAThirdSampleOfOneIsAveraged) {
  Link link = FitLink(Samples{{0, 10}, {1000, 20}});
  EXPECT_DOUBLE_EQ(link.latency_us, 10);
  EXPECT_DOUBLE_EQ(link.bytes_per_us, 100);
  // 1/10 and 1/30 squared as weights: (10/100 + 30/900) / (1/100 + 1/900).
  link = FitLink(Samples{{0, 10}, {0, 30}, {1000, 22}});
  EXPECT_DOUBLE_EQ(link.TimeUs(0), 12);
  EXPECT_DOUBLE_EQ(link.TimeUs(1000), 22);
}

TEST(FitLinkTest, NoiseInTheLargestHidesNoLatency) {
  const Link link{20, 5000};
  Samples samples = SamplesOf(link);
  // The largest are 500 us off, 25 times the latency, which stays.
  samples[samples.size() - 1].us *= 1.15;
  samples[samples.size() - 2].us *= 0.85;
  const Link fitted = FitLink(samples);
  EXPECT_NEAR(fitted.latency_us, 20, 2);
  EXPECT_NEAR(fitted.bytes_per_us, 5000, 250);
  EXPECT_LT(WorstFitError(fitted, samples), 0.2);
}

TEST(FitLinkTest, NoLinkNearbyIsNearerToNoisyTimes) {
  Samples samples = SamplesOf({20, 5000});
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].us *= 1 + 0.3 * std::sin(static_cast<double>(7 * i));
  }
  const Link fitted = FitLink(samples);
  const double error = SquaredError(fitted, samples);
  for (const double latency : {0.99, 1.0, 1.01}) {
    for (const double bandwidth : {0.99, 1.0, 1.01}) {
      EXPECT_GE(SquaredError({fitted.latency_us * latency,
                              fitted.bytes_per_us * bandwidth},
                             samples),
                error);
    }
  }
}

TEST(FitLinkTest, WhereTimesWouldNeedLessThanNoLatencyItIsNone) {
  // As if each byte cost more in a long message.
  const Link link = FitLink(Samples{{1000, 1}, {2000, 4}});
  EXPECT_EQ(link.latency_us, 0);
  // (1000 + 500) / (1000^2 + 500^2) us a byte.
  EXPECT_DOUBLE_EQ(link.bytes_per_us, 1'250'000 / 1500.0);
}

TEST(FitLinkTest, WhereLongMessagesTakeNoLongerBytesCostNothing) {
  Link link = FitLink(Samples{{1000, 10}, {2000, 10}, {3000, 10}});
  EXPECT_NEAR(link.latency_us, 10, 1e-9);
  EXPECT_NEAR(link.TimeUs(1 << 20), 10, 1e-6);
  EXPECT_GT(link.bytes_per_us, 0);
  // The mean by 1/us^2: (2/10 + 1/9) / (2/100 + 1/81).
  link = FitLink(Samples{{1000, 10}, {2000, 10}, {3000, 9}});
  EXPECT_DOUBLE_EQ(link.latency_us, (0.2 + 1 / 9.) / (0.02 + 1 / 81.));
  EXPECT_EQ(link.TimeUs(1 << 30), link.latency_us);
}

TEST(FitLinkTest, OneSizeOrATimeThatIsNoneIsRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Samples& samples :
       {Samples{}, Samples{{4, 1}}, Samples{{4, 1}, {4, 2}},
        Samples{{4, 1}, {8, 0}}, Samples{{4, 1}, {8, -1}},
        Samples{{4, 1}, {8, kNan}}, Samples{{4, kInfinity}, {8, 1}},
        Samples{{-4, 1}, {8, 2}}}) {
    EXPECT_THROW(FitLink(samples), collectives::InvalidArgument);
  }
}

TEST(FitLinkTest, TimesWhoseWeightsOverflowAreRefused) {
  const std::vector<LinkSample> samples = {{1, 1e-300}, {2, 1}};
  EXPECT_THROW(FitLink(samples), collectives::InvalidArgument);
}

TEST(WorstFitErrorTest, IsTheLargestShareOfAMeasuredTime) {
  const Link link{10, 100};
  EXPECT_EQ(WorstFitError(link, Samples{{0, 10}}), 0);
  EXPECT_DOUBLE_EQ(WorstFitError(link, Samples{{0, 8}, {1000, 25}}), 0.25);
  EXPECT_DOUBLE_EQ(WorstFitError(link, Samples{{0, 8}, {1000, 40}}), 0.5);
}

}  // namespace
}  // namespace trainsys
