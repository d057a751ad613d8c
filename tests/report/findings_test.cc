#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

void SetMeasured(Findings& findings, const std::vector<double>& ms) {
  std::vector<BucketPoint>& points = Sweep(findings).points;
  points.resize(ms.size());
  for (size_t i = 0; i < ms.size(); ++i) {
    points[i].step_ms = {ms[i] - 1, ms[i], ms[i] + 1};
  }
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
            "Memory is the formula's to the byte; 1 MiB buckets are fastest, "
            "246.4 ms a step (16 KiB: 256.1); recomputing every block costs 25 "
            "% time and saves 74 % of the activations' peak");
}

TEST(HeadlineTest, MemoryThatDiffersIsSaidFirst) {
  Findings findings = SampleFindings();
  MakeALedgerDiffer(findings);
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("Memory DIFFERS from the formula by 64 bytes;"));
}

TEST(HeadlineTest, WhereTheSmallestSizeIsFastestNothingIsSetAgainstIt) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {200, 210, 220});
  EXPECT_THAT(SaidOnTop(findings),
              HasSubstr("; 16 KiB buckets are fastest, 200.0 ms a step;"));
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

TEST(BucketSentencesTest, AnOptimumInsideHasLatencyLeftAndATailRight) {
  const std::string text = Said(BucketSentences, SampleFindings());
  EXPECT_THAT(text,
              HasSubstr("With 2 ranks 1 MiB is fastest, 246.4 ms a step "
                        "(quartiles 244.9 to 248.9; 256 KiB to 2 MiB are "
                        "within them); by the model 512 KiB, 238.9 ms.\n"));
  EXPECT_THAT(text, HasSubstr("On the left latency: 317 x 40.0 us = 12.7 ms "
                              "with 16 KiB, 20 x 40.0 us = 0.8 ms with 1 MiB; "
                              "in a step a bucket more costs 32.5 us.\n"));
  EXPECT_THAT(text, HasSubstr("16 MiB buckets wait 17.4 ms (12.0 by the "
                              "model), 1 MiB 1.7 ms (0.8 by the model).\n"));
  EXPECT_THAT(text,
              HasSubstr("Without overlap 264.9 ms, 1.07 times as long.\n"));
}

TEST(BucketSentencesTest, AnOptimumAtAnEndLosesNothingThere) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {200, 210, 220});
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("On the left nothing is lost"),
                    HasSubstr("On the right the exposed tail"),
                    HasSubstr("; no other size is within them)")));
  SetMeasured(findings, {220, 210, 200});
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("On the left latency"),
                    HasSubstr("On the right nothing is lost")));
}

TEST(BucketSentencesTest, AsManyBucketsCostNothingMoreOfThem) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  for (BucketPoint& p : Sweep(findings).points) p.num_buckets = 5;
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("5 x 40.0 us = 0.2 ms with 32 KiB.\n"),
                    Not(HasSubstr("a bucket more"))));
}

TEST(BucketSentencesTest, OverlapThatGainsNothingOrCostsIsSaidSo) {
  Findings findings = SampleFindings();
  SetMeasured(findings, {210, 200, 220});
  Sweep(findings).no_overlap_ms = {199, 200.5, 202};
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("Overlap gains nothing here: without it 200.5 ms, "));
  Sweep(findings).no_overlap_ms = {180, 181.5, 182};
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("Overlap costs time here: without it 181.5 ms.\n"));
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
  EXPECT_THAT(Said(BucketSentences, findings),
              AllOf(HasSubstr("off by -4.4 % at 32 KiB and by -9.4 % at most "
                              "(64 KiB): 2 ranks take all 2 cores"),
                    HasSubstr("adds 12.0 ms to the 238.0 without it")));
  findings.conditions.cores = 1;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("2 ranks share 1 cores"));
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
  SetMeasured(findings, {202, 201, 200});
  SetModel(findings, {230, 220, 210});
  Sweep(findings).points[0].num_buckets = 105;
  Sweep(findings).points[2].num_buckets = 5;
  EXPECT_THAT(Said(BucketSentences, findings),
              HasSubstr("off by 5.0 % at 64 KiB and by 13.9 % at most (16 "
                        "KiB): in a step a bucket more costs 20.0 us, not the "
                        "40.0 us of a collective alone"));
  Sweep(findings).link.latency_us = 10;
  EXPECT_THAT(Said(BucketSentences, findings),
              EndsWith("these figures do not show why.\n"));
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
                      "(quartiles 24.3 to 26.2), -6.6 points from that: less "
                      "memory is cheaper to get")));
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
                        "to 10.3): softmax and mask are no FLOPs"));
  SetCost(findings, "selective", 5, 5.5);
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr("(quartiles 4.0 to 6.0), as they say.\n"));
  SetCost(findings, "selective", 2, 5.5);
  EXPECT_THAT(Said(RecomputeSentences, findings),
              HasSubstr(": with less memory to get, at most 51.0 MiB"));
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
  EXPECT_THAT(Said(LimitSentences, findings),
              AllOf(HasSubstr("Shared memory is not a network"),
                    HasSubstr("of 9 interleaved turns of every bucket size and "
                              "20 of every policy"),
                    HasSubstr("More ranks than the 2 cores share them")));
  findings.conditions.backend = "processes over Gloo";
  findings.conditions.cores = 4;
  EXPECT_THAT(Said(LimitSentences, findings),
              AllOf(HasSubstr("Processes of one host are no network"),
                    Not(HasSubstr("More ranks"))));
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
  refused([](Findings& f) { f.memory.cases.clear(); });
  refused([](Findings& f) { f.memory.cases.pop_back(); });
  refused([](Findings& f) { f.buckets.sweeps.clear(); });
  refused([](Findings& f) { f.buckets.sweeps[1].points.clear(); });
  refused([](Findings& f) { f.recompute.costs.clear(); });
  refused(
      [](Findings& f) { f.recompute.costs.erase(f.recompute.costs.begin()); });
}

// The names that others may rely on.
TEST(AsJsonTest, NamesAreStable) {
  const auto report = AsJson(SampleFindings());
  const auto keys = [](const nlohmann::ordered_json& object) {
    std::string all;
    for (const auto& [key, value] : object.items()) all += key + " ";
    return all;
  };
  EXPECT_EQ(keys(report), "conditions memory buckets recompute ");
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
            "ranks turns answer points no_overlap_ms model_no_overlap_ms "
            "alone_ms forward_ms backward_ms optimizer_ms link link_samples ");
  EXPECT_EQ(keys(report["buckets"]["sweeps"][0]["points"][0]),
            "bucket_bytes num_buckets step_ms model_step_ms exposed_ms "
            "model_exposed_ms ");
  EXPECT_EQ(keys(report["recompute"]), "model turns forward_percent costs ");
  EXPECT_EQ(keys(report["recompute"]["costs"][0]),
            "policy step_ms extra_percent model_extra_percent saved_bytes "
            "formula_bytes difference_bytes peak_bytes saves_percent "
            "peak_saves_percent beyond_model_points forward_share_percent ");
  EXPECT_EQ(report["memory"]["cases"][0]["parameter_hash"], "887a389125ac1255");
}

}  // namespace
}  // namespace trainsys
