#include "trainsys/report/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "collectives/errors.h"
#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::Record;
using collectives::Recorder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kContext = 16;

JobOptions Options() {
  JobOptions options;
  options.ranks = 2;
  options.steps = 20;
  options.batch = 3;
  return options;
}

// Steps of 1, 2, ..., 20 ms, 100 ms apart. In each, bucket 0 is posted inside
// backward and bucket 1 after it; the second is waited for, 2 ms for peers and
// 1 ms for data.
Recorder MadeRecorder(int rank, size_t capacity = 1000) {
  Recorder recorder(rank, capacity);
  Record at_start = BucketRecord(0, 1);  // construction: no step's
  at_start.sent_bytes = 1'000'000;
  recorder.Add(at_start);
  for (int64_t step = 0; step < 20; ++step) {
    const int64_t begin_ns = 100 * (step + 1) * kMs;
    const int64_t end_ns = begin_ns + (step + 1) * kMs;
    recorder.AddPhase({"step", step, begin_ns, end_ns});
    recorder.AddPhase({"backward", step, begin_ns, begin_ns + kMs / 2});
    Record first = BucketRecord(0, begin_ns + 1);
    first.sent_bytes = 100;
    recorder.Add(first);
    Record second = BucketRecord(1, begin_ns + kMs / 2);
    second.sent_bytes = 11;
    second.wait_began_ns = begin_ns + kMs;
    second.matched_ns = begin_ns + 3 * kMs;
    second.done_ns = second.wait_ended_ns = begin_ns + 4 * kMs;
    recorder.Add(second);
  }
  return recorder;
}

JobResult MadeResult() {
  JobResult result;
  for (int step = 0; step < 20; ++step) {
    result.losses.push_back(5.5 - 0.125 * step);
  }
  for (int rank = 0; rank < 2; ++rank) {
    RankSummary summary;
    summary.parameter_bytes = 4000;
    summary.gradient_bytes = 4096;
    summary.state_bytes = 4001;
    summary.parameter_hash = 0x1234abcd;
    summary.memory = BudgetOf(Options(), kContext, rank);
    summary.peak.split = summary.memory[StepPoint::kAfterForward];
    summary.peak.split[MemoryCategory::kTemporary] = 777;
    summary.peak.bytes = summary.peak.split.Total();
    summary.saved_raw_bytes = 91;
    summary.saved_distinct_bytes = 82;
    result.ranks.push_back(summary);
    result.recorders.push_back(MadeRecorder(rank));
  }
  return result;
}

JobReport MadeReport() {
  JobReport report = MakeReport(Options(), kContext, MadeResult());
  report.blas = "some kernel";
  report.data = "a text";
  return report;
}

TEST(JobReportTest, TimesAreMedianAndP95OfTheStepsAndSpeedIsOverAllOfThem) {
  const JobReport report = MadeReport();
  EXPECT_EQ(report.tokens_per_step, 2 * 3 * 16);
  EXPECT_DOUBLE_EQ(report.step_ms_median, 10);
  EXPECT_DOUBLE_EQ(report.step_ms_p95, 19);
  EXPECT_DOUBLE_EQ(report.tokens_per_s, 96 * 20 / 0.210);
}

TEST(JobReportTest, CountsBucketsBytesAndWaitsOfTheStepsOnly) {
  for (const RankReport& rank : MadeReport().ranks) {
    EXPECT_EQ(rank.num_buckets, 40);
    EXPECT_EQ(rank.num_posted_in_backward, 20);
    EXPECT_EQ(rank.sent_bytes_per_step, 111);
    EXPECT_DOUBLE_EQ(rank.waited_for_peers_ms, 2);
    EXPECT_DOUBLE_EQ(rank.waited_for_data_ms, 1);
  }
}

// The ring holds the last five steps' records; of the oldest of these steps
// nobody can know that nothing was dropped.
TEST(JobReportTest, ALongJobIsReportedOnTheStepsThatAreStillRecorded) {
  JobResult result = MadeResult();
  for (Recorder& recorder : result.recorders) recorder = MadeRecorder(0, 10);
  const JobReport report = MakeReport(Options(), kContext, result);
  ASSERT_EQ(report.recorded_steps, 4);
  EXPECT_DOUBLE_EQ(report.step_ms_median, 18);
  for (const RankReport& rank : report.ranks) {
    EXPECT_EQ(rank.num_steps, 4);
    EXPECT_EQ(rank.num_buckets, 8);
    EXPECT_EQ(rank.num_posted_in_backward, 4);
    EXPECT_EQ(rank.sent_bytes_per_step, 111);
  }
  EXPECT_THAT(AsText(Options(), report), HasSubstr("of the last 4 steps"));
  EXPECT_THAT(AsText(Options(), MadeReport()), Not(HasSubstr("of the last")));
}

TEST(JobReportTest, ParametersAreCountedByTheirPrecision) {
  EXPECT_EQ(MadeReport().parameters, 1000);
  JobOptions options = Options();
  options.precision = Precision::kF64;
  EXPECT_EQ(MakeReport(options, kContext, MadeResult()).parameters, 500);
}

TEST(JobReportTest, OneHashStandsForAllRanksOrTheJobHasFailed) {
  JobResult result = MadeResult();
  JobReport report = MakeReport(Options(), kContext, result);
  EXPECT_EQ(report.parameter_hash, 0x1234abcd);
  EXPECT_TRUE(HasPassed(report));
  result.ranks[1].parameter_hash = 7;
  report = MakeReport(Options(), kContext, result);
  EXPECT_FALSE(report.is_in_sync);
  EXPECT_FALSE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report), HasSubstr("FAIL"));
}

TEST(JobReportTest, AByteThatTheBudgetDoesNotHaveFailsTheJob) {
  const std::string text = AsText(Options(), MadeReport());
  EXPECT_THAT(text, HasSubstr("PASS memory: budget = ledger to the byte, 9 "
                              "categories x 4 points x 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("saved for backward: 91 raw, 82 distinct"));
  EXPECT_THAT(text, testing::ContainsRegex("temporaries +4 +4 +0 +777\n"));
  JobResult result = MadeResult();
  ++result.ranks[1].memory[StepPoint::kAfterBackward][MemoryCategory::kInput];
  const JobReport report = MakeReport(Options(), kContext, result);
  EXPECT_FALSE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report),
              HasSubstr("FAIL memory is not as budgeted:\n     rank 1 after "
                        "backward: inputs take 1, the budget says 0\n"));
  const json memory =
      json::parse(AsJson(Options(), report))["ranks"][1]["memory"];
  EXPECT_FALSE(memory["as_budgeted"]);
  EXPECT_EQ(memory["ledger_bytes"]["after backward"]["inputs"], 1);
  EXPECT_EQ(memory["peak_split_bytes"]["temporaries"], 777);
}

TEST(JobReportTest, WithoutBucketsThereIsNoBudgetToCompareWith) {
  JobOptions options = Options();
  options.ddp = "simple";
  JobResult result = MadeResult();
  ++result.ranks[1].memory[StepPoint::kAfterBackward][MemoryCategory::kInput];
  const JobReport report = MakeReport(options, kContext, result);
  EXPECT_TRUE(HasPassed(report));
  EXPECT_THAT(AsText(options, report),
              AllOf(HasSubstr("memory: the budget is that of buckets; not "
                              "compared\n"),
                    testing::ContainsRegex("temporaries +- +4 +- +777\n"),
                    Not(HasSubstr("PASS memory"))));
  const json out = json::parse(AsJson(options, report));
  EXPECT_EQ(out["options"]["ddp"], "simple");
  EXPECT_TRUE(out["ranks"][0]["memory"]["budget_bytes"].is_null());
}

TEST(JobReportTest, EitherPartOfTheProofCanFailTheJob) {
  JobReport report = MadeReport();
  report.proof = Proof{2, true, 1e-6, 1e-15};
  EXPECT_TRUE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report), Not(HasSubstr("FAIL")));
  report.proof = Proof{2, false, 1e-6, 1e-15};
  EXPECT_FALSE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report), HasSubstr("FAIL equal bits"));
  report.proof = Proof{2, true, 1e-6, 1e-11};
  EXPECT_FALSE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report), HasSubstr("FAIL plain libtorch"));
}

TEST(JobReportTest, OtherBitsFailOnlyWhereTheBackendPromisesRankOrder) {
  JobReport report = MadeReport();
  report.backend = "gloo";
  report.proof = Proof{2, false, 1e-6, 1e-15};
  EXPECT_FALSE(HasPassed(report));
  report.has_rank_order = false;
  EXPECT_TRUE(HasPassed(report));
  EXPECT_THAT(AsText(Options(), report),
              AllOf(HasSubstr("different bits"), Not(HasSubstr("FAIL"))));
  EXPECT_FALSE(json::parse(AsJson(Options(), report))["rank_order"]);
  report.proof = Proof{2, true, 1e-6, 1e-11};
  EXPECT_FALSE(HasPassed(report));
}

TEST(JobReportTest, OnlyThreadsSaySharedMemorySendsNothing) {
  JobReport report = MadeReport();
  EXPECT_THAT(AsText(Options(), report), HasSubstr("shared memory"));
  EXPECT_EQ(json::parse(AsJson(Options(), report))["backend"], "threads");
  report.backend = "gloo";
  EXPECT_THAT(AsText(Options(), report),
              AllOf(Not(HasSubstr("shared memory")),
                    HasSubstr("what a ring would send")));
  EXPECT_EQ(json::parse(AsJson(Options(), report))["backend"], "gloo");
}

TEST(JobReportTest, AJobWithoutAStepHasNoReport) {
  JobResult result = MadeResult();
  for (Recorder& recorder : result.recorders) recorder = Recorder(0);
  EXPECT_THROW(MakeReport(Options(), kContext, result), collectives::Error);
}

TEST(JobReportTest, TextHasTheFiguresOfEachRankAndTheHash) {
  const std::string text = AsText(Options(), MadeReport());
  EXPECT_THAT(text, HasSubstr("step time 10.0 ms median, 19.0 ms p95; 9143 "
                              "tokens/s\nloss 5.5000 -> 3.1250 in 20 steps"));
  EXPECT_THAT(text,
              HasSubstr("\n   1   3.91 KiB  4.00 KiB  3.91 KiB  50.0 %       "
                        "20/40    111 B      2.0 + 1.0\n"));
  EXPECT_THAT(text, HasSubstr("parameter hash 000000001234abcd, the same on "
                              "all ranks"));
}

TEST(JobReportTest, AnInterruptedJobShowsItsStepsAndHasNotPassed) {
  JobResult result = MadeResult();
  result.losses.resize(12);
  JobOptions options = Options();
  options.steps = 50;
  JobReport report = MakeReport(options, kContext, result);
  report.is_interrupted = true;
  EXPECT_FALSE(HasPassed(report));
  EXPECT_THAT(AsText(options, report),
              AllOf(HasSubstr(" in 12 steps\n"),
                    HasSubstr("\ninterrupted after 12 of 50 steps: nothing is "
                              "proved\n"),
                    Not(HasSubstr("of the last"))));
  const json out = json::parse(AsJson(options, report));
  EXPECT_EQ(out["interrupted"], true);
  EXPECT_EQ(out["passed"], false);
  EXPECT_EQ(out["losses"].size(), 12);
}

// Every text, with the largest figures that a table has room for.
TEST(JobReportTest, EveryLineFitsIn80Columns) {
  for (const bool has_rank_order : {true, false}) {
    for (const char* backend : {"threads", "gloo"}) {
      JobReport report = MadeReport();
      report.backend = backend;
      report.has_rank_order = has_rank_order;
      report.recorded_steps = 19;
      report.step_ms_median = report.step_ms_p95 = 123456.78;
      report.tokens_per_s = 1e7;
      report.outside_peak_bytes = int64_t{1} << 40;
      report.proof = Proof{3, false, 1e-16, 1e-11};
      report.is_interrupted = true;
      for (RankReport& rank : report.ranks) {
        rank.bytes.parameter_bytes = rank.bytes.gradient_bytes =
            rank.bytes.state_bytes = (int64_t{1} << 40) - 1;
        rank.sent_bytes_per_step = (int64_t{1} << 30) - 1;
        rank.num_posted_in_backward = rank.num_buckets = 65536;
        rank.waited_for_peers_ms = rank.waited_for_data_ms = 1234.56;
        rank.clock = {123'456'789, 123'456'789};
        rank.memory.saved_raw_bytes = rank.memory.saved_distinct_bytes =
            int64_t{1} << 39;
      }
      std::istringstream lines(AsText(Options(), report));
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), 80) << line;
      }
    }
  }
}

TEST(JobReportTest, ManyRanksAreCutShortInTextOnly) {
  JobReport report = MadeReport();
  report.ranks.resize(40, report.ranks[0]);
  EXPECT_THAT(AsText(Options(), report), HasSubstr("... and 24 more ranks"));
  EXPECT_EQ(json::parse(AsJson(Options(), report))["ranks"].size(), 40);
}

TEST(JobReportTest, JsonParsesBackToTheSameFigures) {
  JobReport report = MadeReport();
  report.proof = Proof{2, true, 1e-6, 1e-15};
  const std::string text = AsJson(Options(), report);
  EXPECT_EQ(text.back(), '\n');
  const json parsed = json::parse(text);
  EXPECT_EQ(parsed["options"]["ranks"], 2);
  EXPECT_EQ(parsed["options"]["recompute"], "full");
  EXPECT_EQ(parsed["options"]["data"], "a text");
  EXPECT_EQ(parsed["blas"], "some kernel");
  ASSERT_EQ(parsed["losses"].size(), 20);
  EXPECT_EQ(parsed["losses"][1], 5.375);
  EXPECT_EQ(parsed["recorded_steps"], 20);
  EXPECT_EQ(parsed["step_ms_median"], 10.0);
  EXPECT_EQ(parsed["step_ms_p95"], 19.0);
  EXPECT_EQ(parsed["parameters"], 1000);
  EXPECT_EQ(parsed["parameter_hash"], "000000001234abcd");
  EXPECT_EQ(parsed["passed"], true);
  EXPECT_EQ(parsed["interrupted"], false);
  ASSERT_EQ(parsed["ranks"].size(), 2);
  EXPECT_EQ(parsed["ranks"][1]["optimizer_state_bytes"], 4001);
  EXPECT_EQ(parsed["ranks"][1]["bucket_reductions_posted_in_backward"], 20);
  EXPECT_EQ(parsed["ranks"][1]["sent_bytes_per_step_by_rule"], 111);
  EXPECT_EQ(parsed["proof"]["equal_bits"], true);
  EXPECT_EQ(parsed["proof"]["f64_difference"], 1e-15);
}

TEST(JobReportTest, JsonHoldsAPathThatIsNoUtf8) {
  JobReport report = MadeReport();
  report.data = "a\xff";
  EXPECT_EQ(json::parse(AsJson(Options(), report))["options"]["data"],
            "a\xEF\xBF\xBD");
}

TEST(JobReportTest, JsonWithoutAProofSaysNothingOfIt) {
  EXPECT_FALSE(json::parse(AsJson(Options(), MadeReport())).contains("proof"));
}

}  // namespace
}  // namespace trainsys
