#include "trainsys/ddp/backward_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/errors.h"
#include "tests/ddp/layers.h"

namespace trainsys {
namespace {

using collectives::Error;
using ::testing::HasSubstr;
using enum BackwardReport::Outcome;
using Reports = std::vector<BackwardReport>;

constexpr size_t kRanks = 4;

// Of `parameters` parameters, other ones on each rank.
BackwardReport MakeReport(size_t rank, size_t parameters) {
  constexpr BackwardReport::Outcome kOutcomes[] = {kDone, kNoBatch, kGivenUp};
  BackwardReport report;
  report.outcome = kOutcomes[rank % 3];
  if (rank > 0) report.weight = 0.1 * static_cast<double>(rank - 1);
  for (size_t p = 0; p < parameters; ++p) {
    report.is_used.push_back((p * p + rank) % 3 == 0);
  }
  return report;
}

BackwardReport Used(const std::vector<bool>& is_used,
                    BackwardReport::Outcome outcome = kDone) {
  BackwardReport report;
  report.outcome = outcome;
  report.is_used = is_used;
  return report;
}

BackwardReport Weighed(std::optional<double> weight,
                       BackwardReport::Outcome outcome = kDone) {
  BackwardReport report;
  report.outcome = outcome;
  report.weight = weight;
  return report;
}

TEST(BackwardReportTest, DecodingGivesWhatEachRankEncoded) {
  for (size_t parameters : {0, 1, 7, 8, 9, 64, 100}) {
    std::vector<uint8_t> bytes;
    for (size_t r = 0; r < kRanks; ++r) {
      const std::vector<uint8_t> mine = Encode(MakeReport(r, parameters));
      EXPECT_EQ(mine.size(), EncodedBytes(parameters));
      bytes.insert(bytes.end(), mine.begin(), mine.end());
    }
    const Reports reports = Decode(bytes, kRanks, parameters);
    ASSERT_EQ(reports.size(), kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      SCOPED_TRACE(std::to_string(parameters) + " parameters, rank " +
                   std::to_string(r));
      const BackwardReport expected = MakeReport(r, parameters);
      EXPECT_EQ(reports[r].outcome, expected.outcome);
      EXPECT_EQ(reports[r].weight, expected.weight);
      EXPECT_EQ(reports[r].is_used, expected.is_used);
    }
  }
}

TEST(BackwardReportTest, EightParametersTakeAByte) {
  for (size_t bytes : {0, 1, 8}) {
    EXPECT_EQ(EncodedBytes(8 * bytes) - EncodedBytes(0), bytes);
    EXPECT_EQ(EncodedBytes(8 * bytes + 1) - EncodedBytes(0), bytes + 1);
  }
}

TEST(BackwardReportTest, TheFirstRankThatGaveUpIsNamed) {
  Reports reports(4);
  EXPECT_EQ(WhoGaveUp(reports), std::nullopt);
  reports[3].outcome = kGivenUp;
  reports[1].outcome = kNoBatch;
  EXPECT_EQ(WhoGaveUp(reports), 3);
  reports[2].outcome = kGivenUp;
  EXPECT_EQ(WhoGaveUp(reports), 2);
}

TEST(BackwardReportTest, UsedAnywhereIsUsedOnOneRankAtLeast) {
  const Reports reports{Used({false, true, false}), Used({false, true, true})};
  EXPECT_FALSE(IsUsedAnywhere(reports, 0));
  EXPECT_TRUE(IsUsedAnywhere(reports, 1));
  EXPECT_TRUE(IsUsedAnywhere(reports, 2));
}

TEST(BackwardReportTest, AnythingUsedIsOneParameterOnOneRank) {
  EXPECT_FALSE(IsAnythingUsed({Used({false, false}), Used({false, false})}));
  EXPECT_FALSE(IsAnythingUsed({Used({}), Used({})}));
  EXPECT_TRUE(IsAnythingUsed({Used({false, false}), Used({false, true})}));
}

TEST(BackwardReportTest, UnusedParametersAreNamedWithTheirRanks) {
  const Reports reports{Used({true, false, true, true}),
                        Used({false, false, true, true}),
                        Used({false, false, false, true})};
  EXPECT_EQ(UnusedText(reports, {"a", "b", "c.w", "d"}),
            "'a' on ranks 1 2, 'b' on all ranks, 'c.w' on rank 2");
}

TEST(BackwardReportTest, NothingUnusedGivesNoText) {
  EXPECT_EQ(UnusedText({Used({true}), Used({true})}, {"a"}), "");
  EXPECT_EQ(UnusedText({Used({}), Used({})}, {}), "");
}

TEST(BackwardReportTest, RanksThatRanNoBackwardMissNothing) {
  const Reports reports{Used({false, false}, kNoBatch),
                        Used({false, false}, kGivenUp), Used({true, false})};
  EXPECT_EQ(UnusedText(reports, {"a", "b"}), "'b' on rank 2");
}

TEST(BackwardReportTest, TheTotalWeightIsTheSumOverRanksWithABatch) {
  EXPECT_EQ(TotalWeight({Weighed(3), Weighed(0), Weighed(0.5)}), 3.5);
  EXPECT_EQ(TotalWeight({Weighed(std::nullopt, kNoBatch), Weighed(2)}), 2);
  EXPECT_EQ(TotalWeight({Weighed(7, kNoBatch), Weighed(2)}), 2);
}

TEST(BackwardReportTest, RanksWithABatchAndNoWeightAreNamed) {
  const Reports reports{Weighed(std::nullopt), Weighed(3),
                        Weighed(std::nullopt, kNoBatch), Weighed(std::nullopt)};
  EXPECT_THAT(ErrorOf<Error>([&] { TotalWeight(reports); }),
              HasSubstr("ranks 0 3 did not weigh"));
  const Reports none{Weighed(std::nullopt), Weighed(std::nullopt)};
  EXPECT_THAT(ErrorOf<Error>([&] { TotalWeight(none); }),
              HasSubstr("all ranks did not weigh"));
}

TEST(BackwardReportTest, WeightsThatAddUpToNothingAreAnError) {
  EXPECT_THAT(ErrorOf<Error>([] {
                TotalWeight({Weighed(0), Weighed(0)});
              }),
              HasSubstr("add up to 0"));
}

}  // namespace
}  // namespace trainsys
