#include "trainsys/measure/sweep_step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/backend/backend.h"
#include "tests/measure/tiny_job.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Record;

constexpr int64_t kBucketBytes = 4096;

// `fn` gets a step of each rank.
template <typename Function>
void OnTwoRanks(const SweepVariant& variant, const Function& fn) {
  const JobOptions job = TinyJob();
  const ByteDataset data = TinyStories();
  collectives::RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    SweepStep step(job, variant, data, comm);
    fn(step, comm);
  });
}

// The buckets that a rank has posted since then.
int64_t BucketsSince(Communicator& comm, int64_t begin_ns, int64_t end_ns) {
  return static_cast<int64_t>(
      BucketRecords(comm.recorder(), begin_ns, end_ns).size());
}

TEST(SweepStepTest, BucketsArePostedInBackwardUnlessNothingIsAveraged) {
  for (const bool is_averaged : {true, false}) {
    OnTwoRanks({kBucketBytes, is_averaged}, [&](auto& step, auto& comm) {
      for (int64_t i = 0; i < 3; ++i) {
        const StepMarks marks = step.Run(i);
        const auto planned = static_cast<int64_t>(step.plan().size());
        EXPECT_GT(planned, 3);
        EXPECT_EQ(BucketsSince(comm, marks[kForwardEnd], marks[kBackwardEnd]),
                  is_averaged ? planned : 0);
        EXPECT_EQ(BucketsSince(comm, -marks[kMinusBegin], marks[kOptimizerEnd]),
                  is_averaged ? planned : 0);
      }
    });
  }
}

TEST(SweepStepTest, MarksAreInOrderAndGradientsReadyInsideBackward) {
  OnTwoRanks({kBucketBytes, true}, [](auto& step, auto&) {
    for (int64_t i = 0; i < 2; ++i) {
      const StepMarks marks = step.Run(i);
      EXPECT_EQ(marks.size(), kFirstReady + 2 + 1 + 2 * 9);
      EXPECT_LT(-marks[kMinusBegin], marks[kForwardEnd]);
      EXPECT_TRUE(std::is_sorted(marks.begin() + kForwardEnd,
                                 marks.begin() + kFirstReady));
      for (size_t at = kFirstReady; at < marks.size(); ++at) {
        EXPECT_GE(marks[at], marks[kForwardEnd]);
        EXPECT_LE(marks[at], marks[kBackwardEnd]);
      }
      // The output layer's gradient is the first, the embedding's the last.
      EXPECT_LT(marks.back(), marks[kFirstReady]);
    }
  });
}

// After the first one, whose buckets are planned by registration.
TEST(SweepStepTest, ThePlanStaysAsTheSecondStepHasIt) {
  OnTwoRanks({kBucketBytes, true}, [](auto& step, auto&) {
    step.Run(0);
    step.Run(1);
    std::vector<std::vector<size_t>> plan;
    for (const Bucket& bucket : step.plan()) plan.push_back(bucket.parameters);
    step.Run(2);
    ASSERT_EQ(step.plan().size(), plan.size());
    for (size_t b = 0; b < plan.size(); ++b) {
      EXPECT_EQ(step.plan()[b].parameters, plan[b]);
    }
    EXPECT_EQ(step.ElemBytes(), 4);
  });
}

TEST(SweepStepTest, OptimizersGatherWhatTheyUpdated) {
  OnTwoRanks({BucketLimits::kMost, false}, [](auto& step, auto& comm) {
    const StepMarks marks = step.Run(0);
    EXPECT_EQ(step.plan().size(), 1);
    const auto records = comm.recorder().Records();
    EXPECT_TRUE(
        std::any_of(records.begin(), records.end(), [&](const Record& record) {
          return record.operation == collectives::Operation::kAllGather &&
                 record.posted_ns >= marks[kSyncEnd] &&
                 record.posted_ns <= marks[kOptimizerEnd];
        }));
  });
}

}  // namespace
}  // namespace trainsys
