#include "trainsys/checks/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/record/recorder.h"

namespace trainsys {
namespace {

using collectives::Operation;
using collectives::Record;
using collectives::Recorder;
using ::testing::HasSubstr;

constexpr TrainingLimits kLimits{.tolerance = 1e-5,
                                 .needs_equal_bits = true,
                                 .num_parameters = 8,
                                 .num_elems = 10'000,
                                 .largest_elems = 4'000,
                                 .bucket_bytes = 12'000,
                                 .has_overlap = true,
                                 .has_sharding = true};

// Two ranks that did all as they should.
std::vector<RankFacts> RightRanks() {
  RankFacts right;
  for (GradientFacts& g : right.gradients) {
    g = {.largest = 1, .from_sum = 1, .from_fraction = 0.5, .from_own = 0.7};
  }
  for (BackwardTraffic& t : right.traffic) {
    t = {.posted_inside = 3,
         .before_last = 2,
         .bytes_inside = 40'000,
         .largest_bytes = 16'000};
  }
  right.norm = right.expected_norm = 2;
  right.state_bytes = right.kept_bytes = 40'000;
  right.is_equal = 1;
  return {right, right};
}

RecomputeFacts RightSegments() {
  return {.num_segments = 4,
          .num_parameters = 16,
          .has_input_gradient = true,
          .most_accumulations = 1,
          .backward_runs = 4,
          .raw_bytes = 10,
          .distinct_bytes = 10,
          .plain_raw_bytes = 100,
          .plain_distinct_bytes = 100,
          .is_equal = true,
          .is_equal_with_dropout = true,
          .has_same_generator = true};
}

TEST(DiagnosisTest, FindsNothingWhereAllIsWell) {
  EXPECT_FALSE(Diagnose(kLimits, RightRanks()));
  EXPECT_FALSE(Diagnose(RightSegments(), 1e-5, /*needs_equal_bits=*/true));
}

// One thing that is wrong on rank 1, and the words for it.
struct WrongRank {
  std::string words;
  std::function<void(RankFacts&)> spoil;
};
void PrintTo(const WrongRank& wrong, std::ostream* out) { *out << wrong.words; }

class WrongRankTest : public testing::TestWithParam<WrongRank> {};

TEST_P(WrongRankTest, IsToldInItsOwnWords) {
  std::vector<RankFacts> ranks = RightRanks();
  GetParam().spoil(ranks[1]);
  const auto found = Diagnose(kLimits, ranks);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->seen, HasSubstr(GetParam().words));
  EXPECT_NE(found->expected, "");
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    All, WrongRankTest,
    testing::Values(
        WrongRank{"rank 1 starts with other parameters than rank 0",
                  [](RankFacts& r) { r.start_from_rank0 = 0.1; }},
        WrongRank{"step 2: 3 of 8 parameters of rank 1 have no gradient",
                  [](RankFacts& r) { r.gradients[1].num_missing = 3; }},
        WrongRank{"gradients are rank 1's own, up to 0.7 from",
                  [](RankFacts& r) {
                    r.gradients[0].from_mean = 0.7;
                    r.gradients[0].from_own = 0;
                  }},
        WrongRank{"gradients are 2 times the mean over ranks",
                  [](RankFacts& r) {
                    r.gradients[0].from_mean = 1;
                    r.gradients[0].from_sum = 0;
                  }},
        WrongRank{"gradients are 1/2 of the mean over ranks",
                  [](RankFacts& r) {
                    r.gradients[0].from_mean = 0.5;
                    r.gradients[0].from_fraction = 0;
                  }},
        WrongRank{"step 3: gradients of rank 1 are up to 0.2 from",
                  [](RankFacts& r) { r.gradients[2].from_mean = 0.2; }},
        WrongRank{"step 1: gradients of rank 1 are up to nan from",
                  [](RankFacts& r) { r.gradients[0].from_mean = kNaN; }},
        WrongRank{"rank 1's parameters are up to 0.01 from rank 0's",
                  [](RankFacts& r) { r.update_from_rank0 = 0.01; }},
        WrongRank{"rank 1 holds 80000 bytes of optimizer state",
                  [](RankFacts& r) { r.state_bytes = 80'000; }},
        WrongRank{"rank 1 keeps 80000 bytes beside parameters and gradients "
                  "(StateBytes() says 40000), where the whole is 80000: it is "
                  "not sharded",
                  [](RankFacts& r) { r.kept_bytes = 80'000; }},
        WrongRank{"40000 bytes of optimizer state on all ranks",
                  [](RankFacts& r) { r.state_bytes = r.kept_bytes = 0; }},
        WrongRank{"GradNorm() of rank 1 is 1",
                  [](RankFacts& r) { r.norm = 1; }},
        WrongRank{"GradNorm() of rank 1 is nan",
                  [](RankFacts& r) { r.norm = kNaN; }},
        WrongRank{"rank 1's parameters differ by 2.0e-05",
                  [](RankFacts& r) { r.difference = 2e-5; }},
        WrongRank{"rank 1 has DIFFERENT bits",
                  [](RankFacts& r) { r.is_equal = 0; }},
        WrongRank{"step 1, rank 1: 2 blocking reductions",
                  [](RankFacts& r) { r.traffic[0].blocking = 2; }},
        WrongRank{"step 2, rank 1: 3 of 4 asynchronous reductions",
                  [](RankFacts& r) { r.traffic[1].posted_after = 1; }},
        WrongRank{"0 of 0 asynchronous reductions",
                  [](RankFacts& r) { r.traffic[0] = {}; }},
        WrongRank{"1 of 3 reductions were waited for",
                  [](RankFacts& r) { r.traffic[0].waited_inside = 1; }},
        WrongRank{"all gradients are in one bucket",
                  [](RankFacts& r) { r.traffic[0].posted_inside = 1; }},
        WrongRank{"8 reductions inside backward for 8 parameters",
                  [](RankFacts& r) { r.traffic[0].posted_inside = 8; }},
        WrongRank{"all 3 reductions were posted after the last gradient",
                  [](RankFacts& r) { r.traffic[0].before_last = 0; }},
        WrongRank{"reductions of 39996 bytes inside backward, where the "
                  "gradients are 40000",
                  [](RankFacts& r) { r.traffic[0].bytes_inside = 39'996; }},
        WrongRank{"2 blocking reductions after backward",
                  [](RankFacts& r) { r.traffic[0].blocking_after = 2; }},
        WrongRank{"a bucket of 16516 bytes, where bucket_bytes is 12000 and "
                  "the largest gradient 16000",
                  [](RankFacts& r) { r.traffic[0].largest_bytes = 16'516; }}));

// A case of how many bytes of state each of four ranks holds.
struct Shards {
  std::string name;
  std::vector<int64_t> bytes;
  std::string words;  // of what is wrong; empty: nothing is
};
void PrintTo(const Shards& shards, std::ostream* out) { *out << shards.name; }

class ShardsTest : public testing::TestWithParam<Shards> {};

TEST_P(ShardsTest, MayBeWholeParametersButNotEverything) {
  std::vector<RankFacts> ranks(4, RightRanks()[0]);
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].state_bytes = ranks[r].kept_bytes = GetParam().bytes[r];
  }
  const auto found = Diagnose(kLimits, ranks);
  EXPECT_EQ(found.has_value(), !GetParam().words.empty());
  EXPECT_THAT(found ? found->seen : "", HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    FourRanks, ShardsTest,
    testing::Values(
        Shards{"elements", {20'000, 20'000, 20'000, 20'000}, ""},
        Shards{"padded", {20'480, 20'480, 20'480, 20'480}, ""},
        Shards{"whole_parameters", {32'000, 16'000, 16'000, 16'000}, ""},
        Shards{"largest_on_a_full_rank", {52'000, 12'000, 8'000, 8'000}, ""},
        Shards{
            "a_copy_of_its_parameters", {30'000, 30'000, 30'000, 30'000}, ""},
        Shards{"uneven",
               {60'000, 8'000, 8'000, 4'000},
               "rank 0 holds 60000 bytes of optimizer state, where the whole "
               "is 80000: more than a shard"},
        Shards{"everything_on_one",
               {80'000, 0, 0, 0},
               "rank 0 holds 80000 bytes of optimizer state, where the whole "
               "is 80000: it is not sharded"},
        Shards{"twice",
               {40'000, 40'000, 40'000, 40'000},
               "all ranks together hold 160000 bytes"}),
    [](const auto& info) { return info.param.name; });

TEST(DiagnosisTest, ALargeParameterIsNoExcuseForHoldingEverything) {
  TrainingLimits limits = kLimits;
  limits.largest_elems = 9'000;
  std::vector<RankFacts> ranks(4, RightRanks()[0]);
  for (RankFacts& rank : ranks) {
    rank.kept_bytes = rank.state_bytes = 80'000;
  }
  EXPECT_THAT(Diagnose(limits, ranks)->seen, HasSubstr("it is not sharded"));
}

TEST(DiagnosisTest, TheLargestGradientMayHaveABucketOfItsOwnAndItsPadding) {
  std::vector<RankFacts> ranks = RightRanks();
  ranks[0].traffic[0].largest_bytes = 16'000 + 8 * 64;
  EXPECT_FALSE(Diagnose(kLimits, ranks));
  TrainingLimits limits = kLimits;
  limits.bucket_bytes = 20'000;
  ranks[0].traffic[0].largest_bytes = 20'000;
  EXPECT_FALSE(Diagnose(limits, ranks));
}

TEST(DiagnosisTest, TellsAnOptimizerThatDoesNothingFromOneThatForgetsATail) {
  std::vector<RankFacts> ranks = RightRanks();
  for (RankFacts& rank : ranks) {
    rank.num_unchanged = kLimits.num_elems;
    // Later gradients are then wrong as well, which is not the reason.
    rank.gradients[1].from_mean = 1;
  }
  EXPECT_THAT(Diagnose(kLimits, ranks)->seen,
              HasSubstr("changed no parameter"));
  for (RankFacts& rank : ranks) {
    rank.num_unchanged = 3;
    rank.first_unchanged = 9'997;
  }
  EXPECT_THAT(Diagnose(kLimits, ranks)->seen,
              HasSubstr("step 1 left 3 of 10000 elements as they were, the "
                        "first of them number 9997"));
}

TEST(DiagnosisTest, AsksOnlyForWhatTheLimitsName) {
  std::vector<RankFacts> ranks = RightRanks();
  ranks[0].is_equal = 0;
  ranks[0].state_bytes = 0;
  ranks[0].norm = 0;
  ranks[0].traffic[0] = {};
  EXPECT_FALSE(Diagnose(
      {.tolerance = 1e-5, .num_parameters = 8, .num_elems = 10'000}, ranks));
}

struct WrongSegments {
  std::string words;
  std::function<void(RecomputeFacts&)> spoil;
};
void PrintTo(const WrongSegments& wrong, std::ostream* out) {
  *out << wrong.words;
}

class WrongSegmentsTest : public testing::TestWithParam<WrongSegments> {};

TEST_P(WrongSegmentsTest, AreToldInTheirOwnWords) {
  RecomputeFacts facts = RightSegments();
  GetParam().spoil(facts);
  const auto found = Diagnose(facts, 1e-5, /*needs_equal_bits=*/true);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->seen, HasSubstr(GetParam().words));
  EXPECT_NE(found->expected, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongSegmentsTest,
    testing::Values(
        WrongSegments{"outputs differ by nan",
                      [](RecomputeFacts& f) { f.output_difference = kNaN; }},
        WrongSegments{"2 of 16 parameters have no gradient",
                      [](RecomputeFacts& f) { f.num_missing = 2; }},
        WrongSegments{"the input has no gradient",
                      [](RecomputeFacts& f) { f.has_input_gradient = false; }},
        WrongSegments{"accumulated 2 times",
                      [](RecomputeFacts& f) { f.most_accumulations = 2; }},
        WrongSegments{"51 of 100 bytes raw",
                      [](RecomputeFacts& f) { f.raw_bytes = 51; }},
        WrongSegments{"51 of 100 distinct bytes",
                      [](RecomputeFacts& f) { f.distinct_bytes = 51; }},
        WrongSegments{"4 segments ran 8 times in backward",
                      [](RecomputeFacts& f) { f.backward_runs = 8; }},
        WrongSegments{"gradients differ by 2e-05 from those without",
                      [](RecomputeFacts& f) { f.difference = 2e-5; }},
        WrongSegments{"with dropout gradients differ by 0.1",
                      [](RecomputeFacts& f) { f.dropout_difference = 0.1; }},
        WrongSegments{"other random numbers are drawn",
                      [](RecomputeFacts& f) { f.has_same_generator = false; }},
        WrongSegments{"DIFFERENT bits", [](RecomputeFacts& f) {
                        f.is_equal_with_dropout = false;
                      }}));

Record Reduction(int64_t posted_ns, bool is_async, int64_t wait_began_ns = 0,
                 int64_t bytes = 4) {
  Record record;
  record.operation = Operation::kAllReduce;
  record.channel = "of whoever posts";
  record.bytes = bytes;
  record.is_async = is_async;
  record.posted_ns = posted_ns;
  record.wait_began_ns = wait_began_ns;
  return record;
}

TEST(BackwardTrafficTest, CountsReductionsByWhenTheyWerePostedAndWaitedFor) {
  Recorder recorder(/*rank=*/0);
  recorder.Add(Reduction(99, /*is_async=*/true));  // before
  recorder.Add(Reduction(100, true, 199));         // waited for inside
  recorder.Add(Reduction(150, true, 200, /*bytes=*/100));
  recorder.Add(Reduction(180, true));  // never waited for
  recorder.Add(Reduction(120, false, 120));
  recorder.Add(Reduction(200, true));  // after
  recorder.Add(Reduction(210, false));
  recorder.Add(Reduction(299, false));
  recorder.Add(Reduction(300, true));  // of the next step
  Record gather = Reduction(110, true);
  gather.operation = Operation::kAllGather;
  recorder.Add(gather);
  const BackwardTraffic traffic = ReadTraffic(
      recorder, {.name = "backward", .begin_ns = 100, .end_ns = 200},
      /*last_ready_ns=*/180, /*end_ns=*/300);
  EXPECT_EQ(traffic.posted_inside, 3);
  EXPECT_EQ(traffic.posted_after, 1);
  EXPECT_EQ(traffic.blocking, 1);
  EXPECT_EQ(traffic.blocking_after, 2);
  EXPECT_EQ(traffic.waited_inside, 1);
  EXPECT_EQ(traffic.before_last, 2);
  EXPECT_EQ(traffic.bytes_inside, 4 + 100 + 4);
  EXPECT_EQ(traffic.largest_bytes, 100);
}

}  // namespace
}  // namespace trainsys
