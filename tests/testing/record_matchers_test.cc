#include "trainsys/testing/record_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::DType;
using collectives::Operation;
using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::PrintToString;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kMs = 1'000'000;

// Backward from 100 to 200 ms.
PhaseRecord Backward() { return {"backward", 7, 100 * kMs, 200 * kMs}; }

Record Bucket(int number, int64_t posted_ms, int64_t waited_ms) {
  Record record = BucketRecord(number, posted_ms * kMs);
  record.rank = 1;
  record.dtype = DType::kF32;
  record.elems = 1024;
  record.sent_bytes = 4096;
  record.wait_began_ns = waited_ms * kMs;
  return record;
}

// Rank 1 with a backward of three buckets that overlaps, and the loss.
std::vector<Record> OverlappedRecords() {
  std::vector<Record> records{Bucket(0, 120, 210), Bucket(1, 140, 215),
                              Bucket(2, 160, 220)};
  Record loss;
  loss.channel = "main";
  loss.operation = Operation::kAllReduce;
  loss.label = "loss";
  loss.sent_bytes = 8;
  loss.state = RecordState::kDone;
  loss.posted_ns = loss.wait_began_ns = 250 * kMs;
  records.push_back(loss);
  return records;
}

Recorder RecorderOf(const std::vector<Record>& records, int rank = 1) {
  Recorder recorder(rank);
  recorder.AddPhase(Backward());
  for (const Record& record : records) recorder.Add(record);
  return recorder;
}

// What a failed EXPECT_THAT says of the value.
template <typename T, typename M>
std::string Explanation(const T& value, const M& matcher) {
  testing::StringMatchResultListener listener;
  const bool is_match = testing::ExplainMatchResult(matcher, value, &listener);
  return (is_match ? "match: " : "mismatch: ") + listener.str();
}

TEST(RecordMatchersTest, ABucketIsAnAsynchronousReductionOfDdp) {
  const Record bucket = Bucket(3, 120, 210);
  EXPECT_THAT(bucket, AllOf(IsBucket(), IsAsync(), IsDone()));
  Record synchronous = bucket;
  synchronous.is_async = false;
  EXPECT_EQ(Explanation(synchronous, IsBucket()),
            "mismatch: 'bucket 3' of rank 1 is a synchronous all-reduce on "
            "channel 'ddp'");
  EXPECT_EQ(Explanation(synchronous, IsAsync()),
            "mismatch: 'bucket 3' of rank 1 is synchronous");
}

TEST(RecordMatchersTest, IsDoneTellsFailedFromInFlight) {
  Record record = Bucket(0, 120, 210);
  record.state = RecordState::kPosted;
  EXPECT_EQ(Explanation(record, IsDone()),
            "mismatch: 'bucket 0' of rank 1 is in flight");
  record.state = RecordState::kFailed;
  EXPECT_EQ(Explanation(record, IsDone()),
            "mismatch: 'bucket 0' of rank 1 has failed");
}

TEST(RecordMatchersTest, LabelsAndBytesTakeMatchersToo) {
  const Record bucket = Bucket(3, 120, 210);
  EXPECT_THAT(bucket, HasLabel("bucket 3"));
  EXPECT_THAT(bucket, HasLabel(StartsWith("bucket ")));
  EXPECT_THAT(bucket, SentBytes(4096));
  EXPECT_THAT(bucket, SentBytes(Gt(4000)));
  EXPECT_EQ(Explanation(bucket, HasLabel("bucket 4")),
            "mismatch: the label is 'bucket 3' of rank 1");
  EXPECT_EQ(Explanation(bucket, SentBytes(Gt(5000))),
            "mismatch: 'bucket 3' of rank 1 sent 4096 bytes");
}

TEST(RecordMatchersTest, PostedDuringSaysHowFarOff) {
  EXPECT_THAT(Bucket(0, 100, 0), PostedDuring(Backward()));
  EXPECT_EQ(Explanation(Bucket(0, 99, 0), PostedDuring(Backward())),
            "mismatch: 'bucket 0' of rank 1 was posted 1.000 ms before "
            "'backward' of step 7 began");
  EXPECT_EQ(Explanation(Bucket(0, 200, 0), PostedDuring(Backward())),
            "mismatch: 'bucket 0' of rank 1 was posted 0.000 ms after "
            "'backward' of step 7 had ended");
}

TEST(RecordMatchersTest, WaitedOnlyAfterAllowsNoWaitAtAll) {
  EXPECT_THAT(Bucket(0, 120, 200), WaitedOnlyAfter(Backward()));
  EXPECT_EQ(Explanation(Bucket(0, 120, 0), WaitedOnlyAfter(Backward())),
            "match: 'bucket 0' of rank 1 was never waited for");
  EXPECT_EQ(Explanation(Bucket(0, 120, 150), WaitedOnlyAfter(Backward())),
            "mismatch: 'bucket 0' of rank 1 was waited for 50.000 ms into "
            "'backward' of step 7");
}

TEST(RecordMatchersTest, AWaitDuringAPhaseThatLastsIsNotAfterIt) {
  PhaseRecord lasting = Backward();
  lasting.end_ns = 0;
  EXPECT_THAT(Bucket(0, 120, 300), Not(WaitedOnlyAfter(lasting)));
}

TEST(RecordMatchersTest, HasPhaseWantsItsEnd) {
  Recorder recorder(2);
  recorder.AddPhase(Backward());
  recorder.AddPhase({"backward", 8, 300 * kMs, 0});
  EXPECT_THAT(recorder, HasPhase("backward", 7));
  for (const int64_t step : {6, 8}) {
    EXPECT_EQ(Explanation(recorder, HasPhase("backward", step)),
              "mismatch: rank 2 recorded no 'backward' of step " +
                  std::to_string(step) + " to its end");
  }
}

TEST(RecordMatchersTest, WhatWasPostedDuringAPhaseIsMatchedAsAWhole) {
  const Recorder recorder = RecorderOf(OverlappedRecords());
  EXPECT_THAT(recorder, PostedDuring("backward", 7,
                                     AllOf(SizeIs(3), Each(IsBucket()),
                                           Contains(HasLabel("bucket 1")))));
  EXPECT_THAT(Explanation(recorder, PostedDuring("backward", 7, IsEmpty())),
              StartsWith("mismatch: rank 1 posted 3 there ('bucket 0', "
                         "'bucket 1', 'bucket 2')"));
  EXPECT_THAT(
      Explanation(recorder,
                  PostedDuring("backward", 7, Each(HasLabel(StartsWith("x"))))),
      HasSubstr("the label is 'bucket 0' of rank 1"));
  EXPECT_THAT(Explanation(recorder, PostedDuring("forward", 7, IsEmpty())),
              HasSubstr("no 'forward' of step 7"));
}

TEST(OverlapsBackwardTest, BucketsPostedInOrderAndWaitedForLaterDo) {
  EXPECT_THAT(RecorderOf(OverlappedRecords()), OverlapsBackward(7));
}

TEST(OverlapsBackwardTest, EachReasonWhyNotIsSaid) {
  const auto why_not = [](size_t number, const Record& record) {
    std::vector<Record> records = OverlappedRecords();
    records[number] = record;
    return Explanation(RecorderOf(records), OverlapsBackward(7));
  };
  EXPECT_EQ(why_not(2, Bucket(2, 205, 220)),
            "mismatch: 'bucket 2' of rank 1 was posted 5.000 ms after "
            "'backward' of step 7 had ended");
  EXPECT_EQ(why_not(1, Bucket(1, 140, 199)),
            "mismatch: 'bucket 1' of rank 1 was waited for 99.000 ms into "
            "'backward' of step 7");
  EXPECT_EQ(why_not(1, Bucket(2, 140, 215)),
            "mismatch: rank 1 posted 'bucket 2' as number 1");
}

TEST(OverlapsBackwardTest, OneBucketOrNoneCannot) {
  EXPECT_EQ(Explanation(RecorderOf({Bucket(0, 120, 210)}), OverlapsBackward(7)),
            "mismatch: rank 1 posted 1 of the two buckets that an overlap "
            "takes at least");
  EXPECT_THAT(RecorderOf({}), Not(OverlapsBackward(7)));
  EXPECT_THAT(RecorderOf(OverlappedRecords()), Not(OverlapsBackward(6)));
}

TEST(OverlapsBackwardTest, TheNextBackwardIsAnothersMatter) {
  Recorder recorder = RecorderOf(OverlappedRecords());
  recorder.AddPhase({"backward", 8, 300 * kMs, 400 * kMs});
  recorder.Add(Bucket(0, 310, 320));  // waited for inside
  recorder.Add(Bucket(1, 330, 410));
  EXPECT_THAT(recorder, OverlapsBackward(7));
  EXPECT_THAT(recorder, Not(OverlapsBackward(8)));
}

TEST(OverlapsBackwardTest, WithThePlanItIsWhatOverlapViolationSays) {
  const std::vector<trainsys::Bucket> plan{{{2}, {}}, {{1}, {}}, {{0}, {}}};
  const std::vector<int64_t> ready_ns{155 * kMs, 135 * kMs, 115 * kMs};
  const Recorder recorder = RecorderOf(OverlappedRecords());
  EXPECT_THAT(recorder, OverlapsBackward(7, plan, ready_ns));
  EXPECT_EQ(Explanation(recorder,
                        OverlapsBackward(7, {{{0}, {}}, {{1}, {}}}, ready_ns)),
            "mismatch: on rank 1 3 of 2 buckets were posted inside backward");
}

TEST(RecorderMatchersTest, NothingInFlightNamesWhatIs) {
  std::vector<Record> records = OverlappedRecords();
  records[0].state = RecordState::kFailed;
  EXPECT_THAT(RecorderOf(records), NothingInFlight());
  records[1].state = RecordState::kPosted;
  EXPECT_EQ(Explanation(RecorderOf(records), NothingInFlight()),
            "mismatch: rank 1 has 1 in flight ('bucket 1')");
}

TEST(RecorderMatchersTest, SendsAddsUp) {
  const Recorder recorder = RecorderOf(OverlappedRecords());
  EXPECT_THAT(recorder, Sends(3 * 4096 + 8));
  EXPECT_EQ(Explanation(recorder, Sends(Gt(20'000))),
            "mismatch: rank 1 sent 12296 bytes");
}

TEST(MakesTheSameCollectivesTest, TimesAndTheOrderOfChannelsDoNotMatter) {
  const Recorder one = RecorderOf(OverlappedRecords());
  std::vector<Record> records = OverlappedRecords();
  std::swap(records[0], records[3]);  // the loss, on another channel, first
  std::swap(records[1], records[3]);
  std::swap(records[2], records[3]);
  for (Record& record : records) record.posted_ns += kMs;
  EXPECT_THAT(RecorderOf(records, 2), MakesTheSameCollectivesAs(one));
}

TEST(MakesTheSameCollectivesTest, TheFirstDifferenceIsSaid) {
  const Recorder one = RecorderOf(OverlappedRecords());
  std::vector<Record> records = OverlappedRecords();
  records[1].elems = 2048;
  records[2].label = "bucket 9";
  EXPECT_EQ(
      Explanation(RecorderOf(records, 2), MakesTheSameCollectivesAs(one)),
      "mismatch: number 1 on channel 'ddp' is all-reduce sum f32 x 2048 "
      "'bucket 1' on rank 2 and all-reduce sum f32 x 1024 'bucket 1' on rank "
      "1");
  records = OverlappedRecords();
  records.pop_back();
  const Recorder shorter = RecorderOf(records, 2);
  EXPECT_THAT(Explanation(shorter, MakesTheSameCollectivesAs(one)),
              HasSubstr("'main' is nothing on rank 2 and all-reduce sum u8 x 0 "
                        "'loss' on rank 1"));
  EXPECT_THAT(one, Not(MakesTheSameCollectivesAs(shorter)));
}

TEST(MakesTheSameCollectivesTest, EveryFactCounts) {
  const Recorder one = RecorderOf(OverlappedRecords());
  const std::vector<void (*)(Record&)> changes{
      [](Record& r) { r.operation = Operation::kBroadcast; },
      [](Record& r) { r.reduce_op = collectives::ReduceOp::kAverage; },
      [](Record& r) { r.dtype = DType::kF64; },
      [](Record& r) { r.elems += 1; },
      [](Record& r) { r.label += "x"; },
      [](Record& r) { r.is_recomputed = true; }};
  for (const auto change : changes) {
    std::vector<Record> records = OverlappedRecords();
    change(records[2]);
    EXPECT_THAT(RecorderOf(records), Not(MakesTheSameCollectivesAs(one)));
  }
}

TEST(RecordMatchersTest, ValuesPrintAsWordsNotAsBytes) {
  EXPECT_EQ(PrintToString(Bucket(3, 120, 210)),
            "all-reduce sum f32 x 1024 'bucket 3' of rank 1, number 0 on "
            "channel 'ddp'");
  EXPECT_EQ(PrintToString(RecorderOf(OverlappedRecords())),
            "rank 1 with 4 collectives and 1 phases");
  EXPECT_EQ(PrintToString(Backward()), "'backward' of step 7, 100.000 ms");
}

TEST(RecordMatchersTest, ClaimsReadAsSentences) {
  EXPECT_EQ(testing::DescribeMatcher<const Record&>(
                AllOf(IsAsync(), HasLabel("bucket 3"))),
            "(is asynchronous) and (has a label that is equal to \"bucket "
            "3\")");
  EXPECT_EQ(
      testing::DescribeMatcher<const Record&>(Not(WaitedOnlyAfter(Backward()))),
      "was waited for before the end of 'backward' of step 7");
  EXPECT_EQ(testing::DescribeMatcher<const Recorder&>(OverlapsBackward(7)),
            "overlaps reductions with backward of step 7");
}

}  // namespace
}  // namespace trainsys
