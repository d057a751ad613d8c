#include "trainsys/measure/memory_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace trainsys {
namespace {

using enum MemoryCategory;
using ::testing::ElementsAre;
using Category = std::optional<MemoryCategory>;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kBegin = 100 * kMs, kEnd = 110 * kMs;

MemoryEvent Event(int64_t ms, int64_t bytes, Category from, Category to,
                  uintptr_t address = 1) {
  MemoryEvent event;
  event.time_ns = kBegin + ms * kMs;
  event.address = address;
  event.bytes = bytes;
  event.from = from;
  event.to = to;
  return event;
}

MemorySplit Before() {
  MemorySplit split;
  split[kParameter] = 1000;
  split[kTemporary] = 10;
  return split;
}

std::vector<double> Ms(const std::vector<MemorySample>& samples) {
  std::vector<double> ms;
  for (const MemorySample& sample : samples) ms.push_back(sample.ms);
  return ms;
}

std::vector<int64_t> Totals(const std::vector<MemorySample>& samples) {
  std::vector<int64_t> totals;
  for (const MemorySample& sample : samples) {
    totals.push_back(sample.split.Total());
  }
  return totals;
}

TEST(MemorySamplesTest, EveryEventOfTheStepIsBookedWhereTheLedgerBooksIt) {
  const std::vector<MemoryEvent> events{
      Event(-5, 200, {}, kGradient),  // before the step: in its first sample
      Event(1, 50, {}, kTemporary),  Event(2, 50, kTemporary, kActivation),
      Event(4, 50, kActivation, {}), Event(9, 10, kTemporary, {}),
      Event(11, 999, {}, kOther),  // after it
  };
  const auto samples = MemorySamples(Before(), events, kBegin, kEnd);
  EXPECT_THAT(Ms(samples), ElementsAre(0, 1, 2, 4, 9, 10));
  EXPECT_THAT(Totals(samples), ElementsAre(1210, 1260, 1260, 1210, 1200, 1200));
  EXPECT_EQ(samples[1].split[kTemporary], 60);
  EXPECT_EQ(samples[2].split[kTemporary], 10);
  EXPECT_EQ(samples[2].split[kActivation], 50);
  for (const MemorySample& sample : samples) {
    EXPECT_EQ(sample.split[kParameter], 1000);
    EXPECT_EQ(sample.split[kGradient], 200);
    EXPECT_EQ(sample.split[kOther], 0);
  }
}

TEST(MemorySamplesTest, PaddingIsACategoryOfItsOwn) {
  MemoryEvent come = Event(1, 64, {}, kGradient);
  come.padding_bytes = 24;
  MemoryEvent go = Event(2, 64, kGradient, {});
  go.padding_bytes = 24;
  const auto samples =
      MemorySamples(Before(), std::vector{come, go}, kBegin, kEnd);
  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(samples[1].split[kGradient], 40);
  EXPECT_EQ(samples[1].split[kPadding], 24);
  EXPECT_EQ(samples[2].split, Before());
}

TEST(MemorySamplesTest, AStepWithoutEventsIsFlat) {
  const auto samples = MemorySamples(Before(), {}, kBegin, kEnd);
  EXPECT_THAT(Ms(samples), ElementsAre(0, 10));
  EXPECT_THAT(Totals(samples), ElementsAre(1010, 1010));
}

TEST(MemorySamplesTest, OfOneMomentTheLastIsTheSample) {
  const auto samples = MemorySamples(
      Before(),
      std::vector{Event(0, 7, {}, kOther), Event(3, 50, {}, kTemporary),
                  Event(3, 20, {}, kTemporary, 2),
                  Event(10, 1, {}, kTemporary, 3)},
      kBegin, kEnd);
  EXPECT_THAT(Ms(samples), ElementsAre(0, 3, 10));
  EXPECT_THAT(Totals(samples), ElementsAre(1017, 1087, 1088));
}

TEST(MemorySamplesTest, AChangeOfCategoryBookedInTwoIsNoDip) {
  const auto samples = MemorySamples(
      Before(),
      std::vector{Event(1, 50, {}, kTemporary), Event(2, 50, kTemporary, {}),
                  Event(3, 50, {}, kOther), Event(5, 50, kOther, {}),
                  Event(6, 50, {}, kOther, /*address=*/2)},
      kBegin, kEnd);
  EXPECT_THAT(Ms(samples), ElementsAre(0, 1, 3, 5, 6, 10));
  EXPECT_THAT(Totals(samples), ElementsAre(1010, 1060, 1060, 1010, 1060, 1060));
}

int64_t Peak(const std::vector<MemorySample>& samples) {
  const std::vector<int64_t> totals = Totals(samples);
  return *std::max_element(totals.begin(), totals.end());
}

// What is there at a time.
int64_t TotalAt(const std::vector<MemorySample>& samples, double ms) {
  const auto after = std::upper_bound(
      samples.begin(), samples.end(), ms,
      [](double at, const MemorySample& s) { return at < s.ms; });
  return (after - 1)->split.Total();
}

class ThinnedTest : public testing::TestWithParam<unsigned> {
 protected:
  static constexpr size_t kMost = 41;

  // Ten thousand events in 10 ms: mostly small ones, some large.
  void SetUp() override {
    std::mt19937 random(GetParam());
    const auto draw = [&random](int most) {
      return std::uniform_int_distribution<>(0, most)(random);
    };
    std::vector<MemoryEvent> events;
    for (int i = 0; i < 5000; ++i) {
      if (i >= 2000 && i < 3000) continue;  // nothing from 4 to 6 ms
      const int64_t ns = kBegin + i * 2000;
      const int64_t bytes = draw(1000) == 0 ? 100'000 : draw(100);
      events.push_back(
          Event(0, bytes, {}, kTemporary, static_cast<uintptr_t>(2 * i)));
      events.back().time_ns = ns;
      const bool stays = bytes < 100 && draw(2) == 0;
      events.push_back(Event(0, bytes, kTemporary,
                             stays ? Category(kActivation) : Category(),
                             static_cast<uintptr_t>(2 * i + 1)));
      events.back().time_ns = ns + 1000;
    }
    all_ = MemorySamples(Before(), events, kBegin, kEnd, 100'000);
    thinned_ = MemorySamples(Before(), events, kBegin, kEnd, kMost);
  }

  std::vector<MemorySample> all_, thinned_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, ThinnedTest, testing::Range(0u, 10u));

TEST_P(ThinnedTest, SamplesAreFewAndOfTheWholeOnesInTheirOrder) {
  EXPECT_GT(all_.size(), 5000);
  EXPECT_LE(thinned_.size(), kMost);
  EXPECT_GT(thinned_.size(), kMost / 2);
  EXPECT_TRUE(
      std::is_sorted(thinned_.begin(), thinned_.end(),
                     [](const auto& a, const auto& b) { return a.ms < b.ms; }));
  for (const MemorySample& sample : thinned_) {
    EXPECT_EQ(sample.split.Total(), TotalAt(all_, sample.ms));
  }
}

TEST_P(ThinnedTest, ThePeakAndBothEndsAreThere) {
  EXPECT_EQ(Peak(thinned_), Peak(all_));
  for (const auto end : {size_t{0}, all_.size() - 1}) {
    const MemorySample& thinned = end == 0 ? thinned_[0] : thinned_.back();
    EXPECT_EQ(thinned.ms, all_[end].ms);
    EXPECT_EQ(thinned.split, all_[end].split);
  }
}

// A spike before a quiet time does not last through it.
TEST_P(ThinnedTest, WhereNothingHappensTheLevelIsTheRealOne) {
  for (const double ms : {4.6, 5.0, 5.4}) {
    EXPECT_EQ(TotalAt(thinned_, ms), TotalAt(all_, ms));
  }
}

}  // namespace
}  // namespace trainsys
