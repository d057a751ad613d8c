#include "trainsys/timeline/overlap.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::Operation;
using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;

// Three buckets of two parameters, backward from 100 to 200:
//   time      110 115 | 120   130 135 | 140   150 155 | 160
//   gradient    5   4 |         3   2 |         1   0 |
//   posted              b0              b1              b2
struct Backward {
  PhaseRecord phase{"backward", 0, 100, 200};
  std::vector<Bucket> buckets{{{5, 4}, {}}, {{3, 2}, {}}, {{1, 0}, {}}};
  std::vector<int64_t> ready_ns{155, 150, 135, 130, 115, 110};
  std::vector<Record> records{WaitedFor(BucketRecord(0, 120)),
                              WaitedFor(BucketRecord(1, 140)),
                              WaitedFor(BucketRecord(2, 160))};

  static Record WaitedFor(Record record) {
    record.wait_began_ns = 210;
    record.wait_ended_ns = 220;
    return record;
  }
  std::string Violation() const {
    Recorder recorder(0);
    for (const Record& record : records) recorder.Add(record);
    return OverlapViolation(recorder, phase, buckets, ready_ns);
  }
};

TEST(OverlapViolationTest, ABackwardWithOverlapHasNone) {
  EXPECT_EQ(Backward().Violation(), "");
}

TEST(OverlapViolationTest, ABucketPostedBeforeOrAfterBackwardIsMissed) {
  for (const int64_t posted_ns : {99, 200, 500}) {
    Backward backward;
    backward.records[2].posted_ns = posted_ns;
    EXPECT_EQ(backward.Violation(),
              "2 of 3 buckets were posted inside backward");
  }
}

TEST(OverlapViolationTest, ABucketPostedTwiceIsNoticed) {
  Backward backward;
  backward.records.push_back(backward.records[2]);
  EXPECT_EQ(backward.Violation(), "4 of 3 buckets were posted inside backward");
}

TEST(OverlapViolationTest, OnlyAsynchronousAllReducesOfDdpCount) {
  const std::vector<std::function<void(Record&)>> changes{
      [](Record& r) { r.channel = "main"; },
      [](Record& r) { r.is_async = false; },
      [](Record& r) { r.operation = Operation::kBroadcast; }};
  for (const auto& change : changes) {
    Backward backward;
    change(backward.records[1]);
    EXPECT_EQ(backward.Violation(),
              "2 of 3 buckets were posted inside backward");
  }
}

TEST(OverlapViolationTest, AFirstBucketAfterTheLastGradientIsNoOverlap) {
  Backward backward;
  for (size_t b = 0; b < 3; ++b) {
    backward.records[b].posted_ns = 155 + static_cast<int64_t>(b);
  }
  EXPECT_EQ(backward.Violation(),
            "the first bucket was posted after the last gradient");
}

TEST(OverlapViolationTest, OneBucketAloneCannotOverlap) {
  Backward backward;
  backward.buckets = {{{5, 4, 3, 2, 1, 0}, {}}};
  backward.records = {Backward::WaitedFor(BucketRecord(0, 160))};
  EXPECT_EQ(backward.Violation(),
            "the first bucket was posted after the last gradient");
}

TEST(OverlapViolationTest, BucketsOutOfOrderAreNoticed) {
  Backward backward;
  std::swap(backward.records[1].label, backward.records[2].label);
  EXPECT_EQ(backward.Violation(), "bucket 1 was posted out of order");
}

TEST(OverlapViolationTest, AWaitInsideBackwardIsNoticed) {
  Backward backward;
  backward.records[1].wait_began_ns = 145;
  EXPECT_EQ(backward.Violation(), "bucket 1 was waited for inside backward");
}

TEST(OverlapViolationTest, AWaitThatHasNotBegunIsNone) {
  Backward backward;
  for (Record& record : backward.records) record.wait_began_ns = 0;
  EXPECT_EQ(backward.Violation(), "");
}

TEST(OverlapViolationTest, ABucketPostedAfterAGradientOfTheNextIsLate) {
  Backward backward;
  backward.records[1].posted_ns = 152;  // parameter 1's was ready at 150
  EXPECT_EQ(backward.Violation(),
            "bucket 1 was posted after a gradient of the next bucket");
}

TEST(FindPhaseTest, FindsByNameAndStep) {
  Recorder recorder(0);
  recorder.AddPhase({"forward", 0, 1, 2});
  recorder.AddPhase({"forward", 1, 3, 4});
  recorder.AddPhase({"backward", 1, 5, 6});
  EXPECT_EQ(FindPhase(recorder, "forward", 1)->begin_ns, 3);
  EXPECT_EQ(FindPhase(recorder, "backward", 1)->begin_ns, 5);
  EXPECT_FALSE(FindPhase(recorder, "backward", 0));
}

TEST(BucketRecordsTest, AreThoseOfTheIntervalInTheirOrder) {
  Recorder recorder(0);
  for (int b = 0; b < 5; ++b) recorder.Add(BucketRecord(b, 10 * b));
  const auto records = BucketRecords(recorder, 10, 30);
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[0].label, "bucket 1");
  EXPECT_EQ(records[1].label, "bucket 2");
}

}  // namespace
}  // namespace trainsys
