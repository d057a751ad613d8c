#include "trainsys/measure/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/measure/tiny_job.h"
#include "tests/train/ranks_apart.h"
#include "trainsys/checks/faulty_communicator.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using enum MemoryCategory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MemoryFinding Measure(const std::vector<int>& ranks,
                      const MeasureProgress& progress = {}) {
  return MeasureMemory(collectives::RunnerHere(), TinyJob(), TinyStories(),
                       ranks, progress);
}

TEST(MeasureMemoryTest, EveryJobIsThereAndItsLedgerIsItsBudget) {
  const MemoryFinding finding = Measure({2, 3});
  EXPECT_EQ(finding.model.context, kTinyContext);
  EXPECT_EQ(finding.model.rows, 2);
  TransformerConfig config = TinyJob().model;
  config.context = kTinyContext;
  EXPECT_EQ(finding.model.parameters, ParameterCount(config));
  EXPECT_EQ(finding.bucket_bytes, 8192);
  ASSERT_EQ(finding.cases.size(), 12);
  size_t i = 0;
  for (const int ranks : {2, 3}) {
    for (const int zero : {0, 1, 2}) {
      for (const char* recompute : {"none", "full"}) {
        const MemoryCase& found = finding.cases[i++];
        SCOPED_TRACE(i);
        EXPECT_EQ(found.ranks, ranks);
        EXPECT_EQ(found.zero, zero);
        EXPECT_EQ(found.recompute, recompute);
        EXPECT_EQ(found.difference_bytes, 0);
        EXPECT_EQ(found.ledger, found.budget);
        EXPECT_EQ(found.steps, 3);
      }
    }
  }
}

TEST(MeasureMemoryTest, WhatItSaysIsWhatRunJobSays) {
  const MemoryFinding finding = Measure({2});
  JobOptions job = TinyJob();
  job.ranks = 2;
  job.steps = 3;
  job.zero = 2;
  job.recompute = "none";
  const MemoryCase& found = finding.cases[4];
  const RankSummary expected =
      RunJob(collectives::RunnerHere(), job, TinyStories()).ranks.at(0);
  EXPECT_EQ(found.parameter_hash, expected.parameter_hash);
  EXPECT_EQ(found.ledger, expected.memory);
  EXPECT_EQ(found.peak_bytes, expected.peak.bytes);
  EXPECT_EQ(found.activation_peak_bytes,
            expected.peak.of_category[kActivation]);
  EXPECT_EQ(found.budget, BudgetOf(job, kTinyContext, 0));
  for (const MemoryCase& other : finding.cases) {
    EXPECT_EQ(other.parameter_hash, expected.parameter_hash);
  }
}

TEST(MeasureMemoryTest, TheTimelinesAreThoseOfTheLastStepOfTheMostRanks) {
  const MemoryFinding finding = Measure({2, 3});
  ASSERT_EQ(finding.timelines.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const MemoryTimeline& timeline = finding.timelines[i];
    const MemoryCase& found = finding.cases[8 + i];
    EXPECT_EQ(timeline.ranks, 3);
    EXPECT_EQ(timeline.zero, 1);
    EXPECT_EQ(timeline.recompute, i == 0 ? "none" : "full");
    EXPECT_EQ(found.recompute, timeline.recompute);
    std::vector<std::string> names;
    for (const TimedPhase& phase : timeline.phases) {
      names.push_back(phase.name);
      EXPECT_LE(phase.begin_ms, phase.end_ms);
    }
    EXPECT_THAT(names, ElementsAre("forward", "backward", "gradient sync",
                                   "optimizer"));
    // Nothing grows from step to step: it ends as the budget says, and has the
    // peak that the ledger knows.
    ASSERT_GT(timeline.samples.size(), 3);
    EXPECT_LE(timeline.samples.size(), 400);
    EXPECT_EQ(timeline.samples[0].ms, 0);
    MemorySplit end = timeline.samples.back().split;
    MemorySplit after = found.ledger[StepPoint::kAfterOptimizer];
    // The loss and its graph go with the step.
    end[kTemporary] = after[kTemporary] = 0;
    end[kInput] = after[kInput] = 0;
    EXPECT_EQ(end, after);
    int64_t peak = 0;
    for (const MemorySample& sample : timeline.samples) {
      peak = std::max(peak, sample.split.Total());
    }
    EXPECT_EQ(peak, found.peak_bytes);
  }
}

// Where the ranks' gradients are added up instead of averaged, in one run.
class OneWrongRun final : public collectives::RankRunner {
 public:
  explicit OneWrongRun(int number) : runs_left_(number) {}

  std::vector<collectives::Recorder> Run(
      const collectives::RunRanksOptions& options,
      const collectives::RankFunction& fn) override {
    const Fault fault = runs_left_-- == 0 ? Fault::kNoAverage : Fault::kNone;
    return collectives::RunRanksHere(options,
                                     [&](collectives::Communicator& comm) {
                                       FaultyCommunicator faulty(comm, fault);
                                       fn(faulty);
                                     });
  }
  bool HasFirstRank() const override { return true; }

 private:
  int runs_left_;
};

TEST(MeasureMemoryTest, OtherParametersThanThoseOfTheOtherJobsAreAnError) {
  OneWrongRun runner(/*number=*/4);  // the third job; a check follows each
  try {
    MeasureMemory(runner, TinyJob(), TinyStories(), {2}, {});
    FAIL() << "nobody noticed";
  } catch (const collectives::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("2 ranks, ZeRO-1, recompute none: rank 0"));
  }
}

TEST(MeasureMemoryTest, RanksApartAgreeAndTheFirstHasTheFigures) {
  const auto findings =
      RanksApart(3).RunPrograms<MemoryFinding>([&](auto& runner) {
        return MeasureMemory(runner, TinyJob(), TinyStories(), {2, 3}, {});
      });
  EXPECT_EQ(findings[0].cases.size(), 12);
  EXPECT_EQ(findings[0].timelines.size(), 2);
  for (const MemoryCase& found : findings[0].cases) {
    EXPECT_EQ(found.difference_bytes, 0);
  }
  EXPECT_TRUE(findings[1].cases.empty());
  EXPECT_TRUE(findings[2].cases.empty());
}

TEST(MeasureMemoryTest, ProgressCountsTheJobs) {
  std::vector<int64_t> seen;
  std::string last;
  Measure({2}, [&](int64_t done, int64_t all, const std::string& detail) {
    EXPECT_EQ(all, 6);
    seen.push_back(done);
    last = detail;
  });
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(last, "2 ranks, ZeRO-2, recompute full");
}

TEST(MeasureMemoryTest, AnInterruptEndsItBetweenTwoJobs) {
  const InterruptScope scope;
  int64_t jobs = 0;
  const auto interrupt_in_the_second = [&](int64_t done, int64_t,
                                           const std::string&) {
    jobs = done;
    if (done == 1) std::raise(SIGTERM);
  };
  try {
    Measure({2}, interrupt_in_the_second);
    FAIL() << "it went on";
  } catch (const Interrupted& e) {
    EXPECT_EQ(e.signal(), SIGTERM);
  }
  EXPECT_EQ(jobs, 1);
}

}  // namespace
}  // namespace trainsys
