#include "collectives/record/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "collectives/errors.h"

namespace collectives {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

ClockEstimate Estimate(const std::vector<RoundTrip>& trips) {
  return EstimateClock(trips);
}

TEST(EstimateClockTest, EqualWaysGiveTheOffset) {
  const ClockEstimate estimate = Estimate({{1000, 5050, 1100}});
  EXPECT_EQ(estimate.offset_ns, 4000);
  EXPECT_EQ(estimate.error_ns, 50);
}

TEST(EstimateClockTest, TheShortestTripDecides) {
  const ClockEstimate estimate =
      Estimate({{0, 900, 100}, {1000, 1505, 1010}, {2000, 2300, 2020}});
  EXPECT_EQ(estimate.offset_ns, 500);
  EXPECT_EQ(estimate.error_ns, 5);
}

TEST(EstimateClockTest, TheOtherClockMayBeBehind) {
  EXPECT_EQ(Estimate({{5000, 15, 5010}}).offset_ns, -4990);
}

TEST(EstimateClockTest, ATripOfNoTimeIsExact) {
  const ClockEstimate estimate = Estimate({{7, 10, 7}});
  EXPECT_EQ(estimate.offset_ns, 3);
  EXPECT_EQ(estimate.error_ns, 0);
}

// All splits of a short trip into its two ways: the bound holds in each, and
// one nanosecond less would not do.
TEST(EstimateClockTest, UnequalWaysStayWithinTheError) {
  constexpr int64_t kOffset = 100;
  for (int64_t took = 0; took <= 9; ++took) {
    int64_t worst = 0;
    for (int64_t there = 0; there <= took; ++there) {
      const ClockEstimate estimate =
          Estimate({{50, 50 + there + kOffset, 50 + took}});
      EXPECT_EQ(estimate.error_ns, (took + 1) / 2);
      worst = std::max(worst, std::abs(estimate.offset_ns - kOffset));
    }
    EXPECT_EQ(worst, (took + 1) / 2);
  }
}

TEST(EstimateClockTest, RandomDelaysStayWithinTheError) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 1000; ++round) {
    const auto below = [&](uint64_t n) {
      return static_cast<int64_t>(random() % n);
    };
    const int64_t offset_ns = below(1'000'000) - 500'000;
    std::vector<RoundTrip> trips;
    for (int t = 0; t < 8; ++t) {
      const int64_t sent_ns = 1'000'000 + below(1'000'000);
      const int64_t there_ns = below(20'000);
      const int64_t back_ns = below(200);
      trips.push_back({sent_ns, sent_ns + there_ns + offset_ns,
                       sent_ns + there_ns + back_ns});
    }
    const ClockEstimate estimate = Estimate(trips);
    EXPECT_LE(std::abs(estimate.offset_ns - offset_ns), estimate.error_ns);
  }
}

TEST(EstimateClockTest, TheLargestTimesDoNotOverflow) {
  ClockEstimate estimate = Estimate({{kMax - 10, 0, kMax}});
  EXPECT_EQ(estimate.offset_ns, -(kMax - 5));
  EXPECT_EQ(estimate.error_ns, 5);
  estimate = Estimate({{0, kMax, kMax}});
  EXPECT_EQ(estimate.error_ns, kMax / 2 + 1);
}

TEST(EstimateClockTest, NoTripOrAnImpossibleOneIsRefused) {
  EXPECT_THROW(Estimate({}), InvalidArgument);
  EXPECT_THROW(Estimate({{1, 2, 3}, {10, 20, 9}}), InvalidArgument);
  EXPECT_THROW(Estimate({{-1, 2, 3}}), InvalidArgument);
  EXPECT_THROW(Estimate({{1, -2, 3}}), InvalidArgument);
}

Record TimedRecord() {
  Record record;
  record.posted_ns = 100;
  record.matched_ns = 200;
  record.done_ns = 300;
  record.wait_began_ns = 150;
  record.wait_ended_ns = 310;
  return record;
}

TEST(InFirstRanksClockTest, EveryTimeIsShiftedAndTheEstimateKept) {
  Recorder recorder(2);
  recorder.Add(TimedRecord());
  recorder.AddPhase({"step", 4, 90, 400});
  const Recorder shifted = InFirstRanksClock(recorder, {1000, 7});
  EXPECT_EQ(shifted.rank(), 2);
  EXPECT_EQ(shifted.clock().offset_ns, 1000);
  EXPECT_EQ(shifted.clock().error_ns, 7);
  const Record record = shifted.Records().at(0);
  EXPECT_EQ(record.posted_ns, -900);
  EXPECT_EQ(record.matched_ns, -800);
  EXPECT_EQ(record.done_ns, -700);
  EXPECT_EQ(record.wait_began_ns, -850);
  EXPECT_EQ(record.wait_ended_ns, -690);
  EXPECT_EQ(record.WaitedForPeersNs(), TimedRecord().WaitedForPeersNs());
  EXPECT_EQ(record.WaitedForDataNs(), TimedRecord().WaitedForDataNs());
  EXPECT_EQ(shifted.Phases().at(0).step, 4);
  EXPECT_EQ(shifted.Phases().at(0).begin_ns, -910);
  EXPECT_EQ(shifted.Phases().at(0).end_ns, -600);
}

TEST(InFirstRanksClockTest, NotYetStaysNotYetAndNothingElseBecomesIt) {
  Recorder recorder(0);
  recorder.Add(Record{});
  Record on_zero;
  on_zero.posted_ns = 50;
  recorder.Add(on_zero);
  recorder.AddPhase({"lasts", 0, 60, 0});
  const Recorder shifted = InFirstRanksClock(recorder, {50, 1});
  EXPECT_EQ(shifted.Records()[0].posted_ns, 0);
  EXPECT_EQ(shifted.Records()[0].wait_ended_ns, 0);
  EXPECT_EQ(shifted.Records()[1].posted_ns, 1);
  EXPECT_EQ(shifted.Phases()[0].begin_ns, 10);
  EXPECT_EQ(shifted.Phases()[0].end_ns, 0);
}

TEST(InFirstRanksClockTest, ARankOfOneProcessIsAsItWas) {
  Recorder recorder(1);
  recorder.Add(TimedRecord());
  EXPECT_EQ(recorder.clock().offset_ns, 0);
  EXPECT_EQ(recorder.clock().error_ns, 0);
  EXPECT_EQ(InFirstRanksClock(recorder, {}).Records()[0].posted_ns, 100);
}

}  // namespace
}  // namespace collectives
