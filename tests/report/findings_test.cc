#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "collectives/errors.h"
#include "tests/report/sample_findings.h"
#include "trainsys/report/answers.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/findings_tables.h"
#include "trainsys/report/findings_text.h"
#include "trainsys/report/memory_formulas.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using enum MemoryCategory;

using Sentences = std::vector<Sentence> (*)(const Findings&, const Figures&);

std::string Said(Sentences of, const Findings& findings) {
  const auto report = AsJson(findings);
  std::string text;
  for (const Sentence& s : of(findings, Figures(report))) {
    text += Plain(s) + "\n";
  }
  return text;
}

std::string SaidOnTop(const Findings& findings) {
  const auto report = AsJson(findings);
  return Plain(Headline(findings, Figures(report)));
}

// Two ranks on two cores, as all figures below.
BucketSweep& Sweep(Findings& findings) { return findings.buckets.sweeps[0]; }

Quartiles Around(double median, double noise) {
  return {median - noise, median, median + noise};
}

void SetMeasured(Findings& findings, const std::vector<double>& ms,
                 double noise_percent = 0.1) {
  std::vector<BucketPoint>& points = Sweep(findings).points;
  points.resize(ms.size());
  const double least = *std::min_element(ms.begin(), ms.end());
  for (size_t i = 0; i < ms.size(); ++i) {
    points[i].step_ms = Around(ms[i], 1);
    points[i].over_best_percent =
        Around(100 * (ms[i] / least - 1), noise_percent);
    if (ms[i] == least) points[i].over_best_percent = {};
  }
}

// The median step, and what it is beyond the best.
void SetNoOverlap(Findings& findings, double ms, const Quartiles& percent) {
  Sweep(findings).no_overlap_ms = Around(ms, 1);
  Sweep(findings).no_overlap_over_best_percent = percent;
}

BucketAnswer Answer(Findings& findings) {
  return AnswerOf(Sweep(findings), findings.buckets.model.parameters);
}

void SetModel(Findings& findings, const std::vector<double>& ms) {
  for (size_t i = 0; i < ms.size(); ++i) {
    Sweep(findings).points[i].model_step_ms = ms[i];
  }
}

void SetCost(Findings& findings, const std::string& policy, double measured,
             double model) {
  for (RecomputeCost& c : findings.recompute.costs) {
    if (c.policy != policy) continue;
    c.extra_percent = {measured - 1, measured, measured + 1};
    c.model_extra_percent = model;
  }
}

void MakeALedgerDiffer(Findings& findings) {
  MemoryCase& c = findings.memory.cases[14];  // 4 ranks, ZeRO-1, none
  c.ledger[StepPoint::kAfterForward][kOptimizerState] += 64;
  c.difference_bytes = 64;
}

// --------------------------------------------------------------- headline

TEST(HeadlineTest, TheThreeFindingsAreThereWithTheirNumbers) {
  EXPECT_EQ(SaidOnTop(SampleFindings()),
            "Memory is the formula's to the byte; with 2 ranks bucket sizes "
            "from 256 KiB to 2 MiB are equally fast (246.4 to 247.8 ms a "
            "step); recomputing every block costs 25 % time and saves 74 % of "
            "the activations' peak");
}

TEST(HeadlineTest, RecomputationWithinTheNoiseCostsNothingMeasurable) {
  Findings findings = SampleFindings();
  SetCost(findings, "full", 0.5, 31.7);
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("costs no measurable time and saves 74 %"));
  SetCost(findings, "full", -5, 31.7);
  EXPECT_THAT(SaidOnTop(findings), HasSubstr("costs -5 % time and saves"));
}

TEST(HeadlineTest, MemoryThatDiffersIsSaidFirst) {
  Findings findings = SampleFindings();
  MakeALedgerDiffer(findings);
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("Memory DIFFERS from the formula by 64 bytes;"));
}

TEST(HeadlineTest, OneSizeIsFastestOnlyWhereNoOtherIsAsFast) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {224, 200, 220});
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("; with 2 ranks 32 KiB buckets are fastest, 200.0 ms a "
                        "step; 16 KiB takes 1.12 times as long; recomputing"));
  SetMeasured(findings, {224, 200, 201}, 0.5);
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("; with 2 ranks bucket sizes from 32 KiB to 64 KiB are "
                        "equally fast (200.0 to 201.0 ms a step); "));
}

TEST(HeadlineTest, WhereTheSmallestSizeIsFastestNothingIsSetAgainstIt) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {200, 210, 220});
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr(" 16 KiB buckets are fastest, 200.0 ms a step; rec"));
}

TEST(HeadlineTest, SizesThatAreAsFastFurtherOffAreCounted) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {200, 220, 201, 240}, 0.5);
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("; with 2 ranks 2 sizes from 16 KiB to 64 KiB are "
                        "equally fast (200.0 to 201.0 ms a step); "));
}

// ----------------------------------------------------------------- memory

TEST(MemorySentencesTest, WhatStagesAndRecomputationSaveIsInTheirNumbers) {
  const std::string text = Said(MemorySentences, SampleFindings());
  EXPECT_THAT(text, HasSubstr("18 jobs x 4 points of a step x 9 categories, "
                              "every rank: 0 bytes between"));
  // 8 P 3/4; that and 4 P 3/4 less two buckets.
  EXPECT_THAT(text, HasSubstr("4 ranks ZeRO-1 saves 5.3 MiB a rank, ZeRO-2 "
                              "7.0 MiB, full recomputation 58.0 MiB, 92 %"));
}

TEST(MemorySentencesTest, ADifferenceNamesTheFirstJobThatHasIt) {
  Findings findings = SampleFindings();
  MakeALedgerDiffer(findings);
  EXPECT_THAT(Said(MemorySentences, findings),
              HasSubstr("DIFFER by up to 64 bytes, first with 4 ranks, "
                        "ZeRO-1, recompute none."));
}

// ---------------------------------------------------------------- buckets

TEST(BucketAnswerTest, EqualSizesAreThoseNoLongerInAQuarterOfTheTurns) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {230, 202, 200, 215, 203}, 2);
  // A noisy size, whose own quartiles reach far, is as fast all the same.
  Sweep(findings).points[0].over_best_percent = {0, 15, 40};
  Sweep(findings).points[4].over_best_percent = {0.1, 1.5, 2};
  const EqualSizes equal = Answer(findings).equal;
  EXPECT_EQ(equal.count, 3);
  EXPECT_EQ(equal.from, 0);
  EXPECT_EQ(equal.to, 2);
  EXPECT_EQ(equal.slowest, 0);
  EXPECT_TRUE(equal.AreAllBetween());
  Sweep(findings).points[4].over_best_percent.low = -0.1;
  EXPECT_EQ(Answer(findings).equal.to, 4);
  EXPECT_FALSE(Answer(findings).equal.AreAllBetween());
}

TEST(BucketAnswerTest, ByTheModelSizesAreEqualWithinHalfAPercent) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220, 230});
  SetModel(findings, {201.1, 200, 200.9, 200});
  const BucketAnswer answer = Answer(findings);
  EXPECT_EQ(answer.model_equal.count, 3);
  EXPECT_EQ(answer.model_equal.from, 1);
  EXPECT_EQ(answer.model_equal.to, 3);
  EXPECT_EQ(answer.model_equal.slowest, 2);
}

TEST(BucketSentencesTest, AnOptimumInsideHasLatencyLeftAndATailRight) {
  const std::string text = Said(BucketSentences, SampleFindings());
  EXPECT_THAT(text,
              HasSubstr("With 2 ranks 256 KiB to 2 MiB are equally fast, 246.4 "
                        "to 247.8 ms a step: turn by turn none is reliably "
                        "slower than 1 MiB, the least; by the model 256 KiB to "
                        "2 MiB, 238.9 to 239.7 ms.\n"));
  EXPECT_THAT(text, HasSubstr("On the left 16 KiB takes 9.7 ms more than 1 "
                              "MiB; latency is 317 x 40.0 us = 12.7 ms, not 20 "
                              "x 40.0 us = 0.8 ms: enough to explain it.\n"));
  EXPECT_THAT(text,
              HasSubstr("On the right 16 MiB takes 15.1 ms more than 1 MiB; "
                        "its exposed tail is 17.4 ms (12.0 by the model), not "
                        "1.7 ms (0.8 by the model): enough to explain it.\n"));
  EXPECT_THAT(text, HasSubstr("Without overlap 264.9 ms, longer by 7.5 % turn "
                              "by turn (quartiles 6.7 to 8.7).\n"));
}

TEST(BucketSentencesTest, ASizeThatAloneIsFastestHasItsQuartiles) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  SetModel(findings, {205, 204, 201});
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("With 2 ranks 32 KiB is fastest, 200.0 ms a step "
                        "(quartiles 199.0 to 201.0); by the model 64 KiB, "
                        "201.0 ms.\n"));
}

TEST(BucketSentencesTest, AnEndThatIsAsFastLosesNothingMeasurable) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {200.1, 200, 220});
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("On the left nothing measurable is lost: 16 KiB "
                              "is as fast, its latency 317 x 40.0 us = 12.7 "
                              "ms.\n"),
                    HasSubstr("On the right 64 KiB takes 20.0 ms more")));
  SetMeasured(findings, {220, 200, 200.1});
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("On the left 16 KiB takes 20.0 ms more"),
                    HasSubstr("On the right nothing measurable is lost: 64 KiB "
                              "is as fast, its exposed tail ")));
}

TEST(BucketSentencesTest, WhatLatencyAndTailDoNotExplainIsSaid) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {290, 200, 220});
  std::vector<BucketPoint>& points = Sweep(findings).points;
  points[1].num_buckets = 17;
  points[1].exposed_ms = 2;
  points[2].exposed_ms = 5;
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("takes 90.0 ms more than 32 KiB; latency is 317 "
                              "x 40.0 us = 12.7 ms, not 17 x 40.0 us = 0.7 ms: "
                              "12.0 ms of it, the rest these figures do not "
                              "explain. A bucket more costs 300.0 us in "
                              "all.\n"),
                    HasSubstr(": 3.0 ms of it, the rest these figures do not "
                              "explain.\n")));
  points[1].exposed_ms = 6.9;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("takes 20.0 ms more than 32 KiB, not for its exposed "
                        "tail: 5.0 ms ("));
}

TEST(BucketSentencesTest, AsManyBucketsHaveAsMuchLatency) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  for (BucketPoint& p : Sweep(findings).points) p.num_buckets = 5;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("takes 10.0 ms more than 32 KiB, not for its latency: "
                        "5 x 40.0 us = 0.2 ms for either.\n"));
}

TEST(BucketSentencesTest, OverlapThatGainsNothingOrCostsIsSaidSo) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  // Medians are as far apart as above; the turns say otherwise.
  SetNoOverlap(findings, 214.9, {-0.1, 0.2, 8});
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("Overlap gains nothing measurable here: without it "
                        "214.9 ms, 0.2 % turn by turn (quartiles -0.1 to "
                        "8.0).\n"));
  SetNoOverlap(findings, 181.5, {-10, -9.2, -9});
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("Overlap costs time here: without it 181.5 ms, -9.2 % "
                        "turn by turn (quartiles -10.0 to -9.0).\n"));
}

TEST(BucketSentencesTest, AModelThatAgreesIsNotExplained) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  SetModel(findings, {212.1, 200, 222});
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("The model is off by 1.0 % at most.\n"));
}

TEST(BucketSentencesTest, AModelThatIsTooFastLacksTheCoresThatAreShared) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {260, 250, 265});
  SetModel(findings, {240, 239, 240});
  Sweep(findings).points[2].num_buckets = 100;
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("off by -4.4 % at 32 KiB and by -9.4 % at most "
                              "(64 KiB): 2 ranks take all 2 cores"),
                    HasSubstr("there averaging adds 27.0 ms to the 238.0 "
                              "without it, its all-reduces alone take 18.8")));
  findings.conditions.cores = 1;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("2 ranks share 1 core, and communication takes"));
  // It takes less than its collectives alone: the cores do not explain it.
  Sweep(findings).alone_ms.median = 250;
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("these figures do not show why.\n"));
}

TEST(BucketSentencesTest, CoresExplainNoMoreThanAveragingAdds) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {260, 250, 265});
  SetModel(findings, {240, 239, 210});  // by 55 ms, and it adds 27
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("these figures do not show why.\n"));
}

TEST(BucketSentencesTest, TimesThatAreNoneAreNotSetAgainstTheModel) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {0, 0});
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("cannot be set against the model's.\n"));
}

TEST(BucketSentencesTest, SizesThatMakeTheSameBucketsTellTheNoise) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {255, 250, 265, 240});
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("\n16 KiB to 64 KiB make the same 317 buckets, as no "
                        "parameter is split: their 250.0 to 265.0 ms are "
                        "noise.\n"));
  Sweep(findings).points[1].num_buckets = 300;
  EXPECT_THAT(Said(BucketSentences, findings), Not(HasSubstr("the same")));
}

TEST(BucketSentencesTest, WithCoresToSpareATooFastModelIsUnexplained) {
  Findings findings = SampleFindings();
  findings.buckets.sweeps.resize(1);
  findings.conditions.cores = 8;
  SetMeasured(findings, {260, 250, 265});
  SetModel(findings, {240, 239, 240});
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("these figures do not show why.\n"));
}

TEST(BucketSentencesTest, AModelThatIsTooSlowCountsOnLatencyThatStepsHideHalf) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {52, 51, 50});
  SetModel(findings, {56, 53, 52});
  Sweep(findings).points[0].num_buckets = 105;
  Sweep(findings).points[2].num_buckets = 5;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("off by 4.0 % at 64 KiB and by 7.7 % at most (16 KiB): "
                        "in a step a bucket more costs 20.0 us, not the 40.0 "
                        "us of a collective alone"));
  // As fast, within the noise.
  Sweep(findings).points[0].over_best_percent.low = -1;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("a bucket more costs nothing measurable, not the"));
  // Too slow by more than twice its 4.2 ms of latency.
  SetModel(findings, {62, 53, 52});
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("these figures do not show why.\n"));
}

TEST(SweepTableTest, TiesAreCountedAndTheFitsErrorIsSaid) {
  Findings findings = SampleFindings();
  const auto row = [&findings](const std::string& head) -> std::string {
    const auto report = AsJson(findings);
    for (const auto& row : SweepTable(findings, Figures(report)).rows) {
      if (Plain(row[0]) == head) return Plain(row[1]);
    }
    return "no row";
  };
  EXPECT_EQ(row("as fast"), "256 KiB–2 MiB");
  EXPECT_EQ(row("as fast by model"), "256 KiB–2 MiB");
  EXPECT_EQ(row("both off by up to, %"), "3");
  SetMeasured(findings, {210, 200, 220});
  EXPECT_EQ(row("as fast"), "32 KiB");
  SetMeasured(findings, {201, 220, 200}, 0.5);
  EXPECT_EQ(row("as fast"), "2 in 16 KiB–64 KiB");
}

TEST(SweepToShowTest, TheMostRanksWithACoreEachElseTheFewest) {
  const BucketFinding buckets = SampleFindings().buckets;  // 2, 3, 4 ranks
  EXPECT_EQ(SweepToShow(buckets, 1), 0);
  EXPECT_EQ(SweepToShow(buckets, 2), 0);
  EXPECT_EQ(SweepToShow(buckets, 3), 1);
  EXPECT_EQ(SweepToShow(buckets, 64), 2);
}

// ---------------------------------------------------------- recomputation

TEST(RecomputeSentencesTest, FullIsSetAgainstOneMoreForwardAndItsFlops) {
  Findings findings = SampleFindings();
  EXPECT_THAT(
      Said(RecomputeSentences, findings),
      AllOf(HasSubstr("One more forward would be 33.3 % more."),
            HasSubstr("95.1 % of a forward's FLOPs, so 31.7 %; measured 25.1 % "
                      "(quartiles 24.3 to 26.2), -6.6 points from that: it "
                      "may be that less memory is cheaper to get")));
  SetCost(findings, "full", 32, 31.7);
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr("(quartiles 31.0 to 33.0), as the FLOPs say.\n"));
  SetCost(findings, "full", 40, 31.7);
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr(", 8.3 points from that: norms, softmax and copies"));
}

TEST(RecomputeSentencesTest, SelectiveIsSetAgainstItsFlops) {
  Findings findings = SampleFindings();
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr("twice, 5.5 % by FLOPs, measured 9.2 % (quartiles 8.4 "
                        "to 10.3): softmax and mask, no FLOPs here, run twice "
                        "too; how long they take was not measured.\n"));
  SetCost(findings, "selective", 5, 5.5);
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr("(quartiles 4.0 to 6.0), as they say.\n"));
  SetCost(findings, "selective", 2, 5.5);
  EXPECT_THAT(
      Said(RecomputeSentences, findings),
      HasSubstr(": it may be for less memory to get, at most 51.0 MiB"));
}

TEST(RecomputeSentencesTest, BytesThatAreNotTheFormulasNameTheirPolicy) {
  Findings findings = SampleFindings();
  EXPECT_THAT(Said(RecomputeSentences, findings),
              EndsWith("is its formula's, to the byte.\n"));
  findings.recompute.costs[3].saved_bytes -= 1024;
  EXPECT_THAT(Said(RecomputeSentences, findings),
              EndsWith("every-2 saves DIFFERS from its formula by -1,024 "
                       "bytes.\n"));
}

// ------------------------------------------------------------ limits, rest

TEST(LimitSentencesTest, WhatIsNoNetworkAndWhoSharesCoresIsSaid) {
  Findings findings = SampleFindings();
  EXPECT_THAT(
      Said(LimitSentences, findings),
      AllOf(HasSubstr("Shared memory is not a network"),
            HasSubstr("of 9 interleaved turns of every bucket size and "
                      "20 of every policy"),
            HasSubstr("More ranks than the 2 cores share them: their times are "
                      "not those of a core each.\n")));
  findings.conditions.backend = "processes over Gloo";
  findings.conditions.cores = 4;
  EXPECT_THAT(
      Said(LimitSentences, findings),
      AllOf(HasSubstr("Processes of one host are no network"),
            Not(HasSubstr("More ranks")), Not(HasSubstr("So few turns"))));
  findings.recompute.turns = 3;
  EXPECT_THAT(Said(LimitSentences, findings),
              EndsWith("So few turns are a trial, no figures to rely on.\n"));
}

TEST(ConditionLinesTest, ModelRanksHostVersionsAndCommitAreThere) {
  EXPECT_EQ(Said(ConditionLines, SampleFindings()),
            "TransformerLM of width 128: memory and recomputation 4 layers "
            "(918,656 parameters), 4 x 256 tokens a rank, buckets of 512 KiB; "
            "bucket size 24 layers (5,183,616 parameters), 1 x 128 tokens a "
            "rank, ZeRO-1, recompute full.\n"
            "Ranks 2, 3, 4 as threads; data made stories, 4 MiB, seed 1; "
            "2026-11-30, a processor of 2 cores <&>, 2 cores; 214 s in all.\n"
            "libtorch 1.13.1, OpenBLAS 0.3.21, kernel Zen, one thread a rank, "
            "compiler g++ 12.2.0; commit 383dfa8.\n");
}

TEST(ConditionLinesTest, ASeedIsSaidAsACommandTakesIt) {
  Findings findings = SampleFindings();
  findings.conditions.seed = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(Said(ConditionLines, findings),
              HasSubstr("seed 18446744073709551615; "));
}

TEST(ConditionLinesTest, RecomputationOfAnotherModelIsSaid) {
  Findings findings = SampleFindings();
  findings.recompute.model.rows = 2;
  EXPECT_THAT(Said(ConditionLines, findings),
              HasSubstr(": recomputation 4 layers (918,656 parameters), 2 x "
                        "256 tokens a rank; memory 4 layers"));
}

// Every figure that is said or stands in a table is in report.json at the
// place it names.
TEST(FiguresTest, EachStandsAtItsPlaceInTheReport) {
  Findings findings = SampleFindings();
  MakeALedgerDiffer(findings);
  const auto report = AsJson(findings);
  const Figures figures(report);
  std::vector<Sentence> all = {Headline(findings, figures)};
  for (const Sentences of :
       {&ConditionLines, &MemorySentences, &BucketSentences,
        &RecomputeSentences, &LimitSentences}) {
    for (const Sentence& s : of(findings, figures)) all.push_back(s);
  }
  for (const auto table : {&FormulaTable, &TotalsTable, &SweepTable,
                           &AllSizesTable, &RecomputeTable}) {
    for (const auto& row : table(findings, figures).rows) {
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  size_t count = 0;
  for (const Sentence& sentence : all) {
    for (const Piece& piece : sentence.pieces) {
      if (piece.path.empty() || piece.unit == 0) continue;
      ++count;
      EXPECT_EQ(figures.Value(piece.path), piece.value) << piece.path;
      std::string digits = piece.text;
      std::erase(digits, ',');
      const size_t point = digits.find('.');
      const double decimals =
          point == std::string::npos ? 0 : digits.size() - point - 1.0;
      EXPECT_NEAR(std::stod(digits), piece.value / piece.unit,
                  0.5000001 * std::pow(10, -decimals))
          << piece.path;
    }
  }
  EXPECT_GT(count, 400u);
}

TEST(FiguresTest, WhatIsNotFiniteIsNullAndSaidToBeNone) {
  Findings findings = SampleFindings();
  Sweep(findings).link.bytes_per_us = std::numeric_limits<double>::infinity();
  const auto report = AsJson(findings);
  EXPECT_TRUE(report["buckets"]["sweeps"][0]["link"]["bytes_per_us"].is_null());
  EXPECT_EQ(Plain(Figures(report).Number("buckets.sweeps.0.link.bytes_per_us")),
            "none");
}

TEST(AsJsonTest, FindingsThatLackAPartAreRefused) {
  const auto refused = [](const std::function<void(Findings&)>& spoil) {
    Findings findings = SampleFindings();
    spoil(findings);
    EXPECT_THROW(AsJson(findings), collectives::InvalidArgument);
  };
  refused([](Findings& f) { f.memory.cases.pop_back(); });
  refused([](Findings& f) { f.buckets.sweeps[1].points.clear(); });
  refused(
      [](Findings& f) { f.recompute.costs.erase(f.recompute.costs.begin()); });
}

TEST(AsJsonTest, PartsThatWereNotMeasuredAreAbsent) {
  Findings findings = SampleFindings();
  findings.is_interrupted = true;
  findings.buckets.sweeps.clear();
  findings.recompute.costs.clear();
  const auto report = AsJson(findings);
  EXPECT_EQ(report["interrupted"], true);
  EXPECT_TRUE(report.contains("memory"));
  EXPECT_FALSE(report.contains("buckets"));
  EXPECT_FALSE(report.contains("recompute"));
}

// The names that others may rely on.
TEST(AsJsonTest, NamesAreStable) {
  const auto report = AsJson(SampleFindings());
  const auto keys = [](const nlohmann::ordered_json& object) {
    std::string all;
    for (const auto& [key, value] : object.items()) all += key + " ";
    return all;
  };
  EXPECT_EQ(keys(report), "conditions interrupted memory buckets recompute ");
  EXPECT_EQ(keys(report["conditions"]),
            "backend date host cores versions commit command data seed "
            "seconds ");
  EXPECT_EQ(keys(report["memory"]),
            "model bucket_bytes answer letters formulas cases timelines ");
  EXPECT_EQ(keys(report["memory"]["model"]),
            "parameters vocab context dim layers heads ffn rows ");
  EXPECT_EQ(keys(report["memory"]["formulas"][0]),
            "what formula numbers formula_bytes ledger_bytes "
            "difference_bytes ");
  EXPECT_EQ(keys(report["memory"]["cases"][0]),
            "ranks zero recompute steps parameter_hash difference_bytes "
            "peak_bytes activation_peak_bytes budget_bytes ledger_bytes ");
  EXPECT_EQ(keys(report["memory"]["cases"][0]["ledger_bytes"]),
            "after_construction after_forward after_backward after_optimizer ");
  EXPECT_EQ(
      keys(report["memory"]["cases"][0]["ledger_bytes"]["after_forward"]),
      "parameters gradients optimizer_state activations communication inputs "
      "temporaries other padding total ");
  EXPECT_EQ(keys(report["memory"]["timelines"][0]),
            "ranks zero recompute peak_bytes phases samples_ms "
            "samples_bytes ");
  EXPECT_EQ(keys(report["buckets"]),
            "model zero recompute shown_sweep sweeps ");
  EXPECT_EQ(keys(report["buckets"]["sweeps"][0]),
            "ranks turns answer points no_overlap_ms "
            "no_overlap_over_best_percent model_no_overlap_ms "
            "alone_ms forward_ms backward_ms optimizer_ms link link_samples ");
  EXPECT_EQ(keys(report["buckets"]["sweeps"][0]["points"][0]),
            "bucket_bytes num_buckets step_ms over_best_percent "
            "model_step_ms exposed_ms model_exposed_ms ");
  EXPECT_EQ(keys(report["buckets"]["sweeps"][0]["answer"]),
            "best_bytes model_best_bytes equal_sizes equal_from_bytes "
            "equal_to_bytes model_equal_sizes model_equal_from_bytes "
            "model_equal_to_bytes same_to_bytes smallest_over_best "
            "no_overlap_over_best "
            "smallest_more_ms largest_more_ms smallest_latency_ms "
            "best_latency_ms latency_more_ms tail_more_ms transfer_ms added_ms "
            "collectives_ms bucket_us farthest_bytes farthest_percent "
            "best_percent fit_error_percent ");
  EXPECT_EQ(keys(report["recompute"]), "model turns forward_percent costs ");
  EXPECT_EQ(keys(report["recompute"]["costs"][0]),
            "policy step_ms extra_percent model_extra_percent saved_bytes "
            "formula_bytes difference_bytes peak_bytes saves_percent "
            "peak_saves_percent beyond_model_points forward_share_percent ");
  EXPECT_EQ(report["memory"]["cases"][0]["parameter_hash"], "887a389125ac1255");
}

}  // namespace
}  // namespace trainsys
