#include "trainsys/timeline/step_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "collectives/errors.h"
#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::Operation;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DrawStepTest, OneAxisHasAllPhasesAndCollectivesOfTheStep) {
  Recorder recorder = MadeRecorder();
  recorder.Add(MadeBucket());
  Record loss = MadeBucket();
  loss.label = "loss";
  loss.is_async = false;
  loss.bytes = 8;
  loss.posted_ns = loss.matched_ns = loss.done_ns = 119 * kMs;
  recorder.Add(loss);
  // clang-format off
  EXPECT_EQ(DrawStep(recorder, 4, 20),
      "step 5 of rank 3, 20.0 ms from left to right; times in ms\n"
      "'.' waits for peers, '#' moves data, '|' waited for posted matched   "
          "done\n"
      "  forward        |=====               |    0.0            5.0\n"
      "  backward       |     ==========     |    5.0           15.0\n"
      "  bucket 0       |        ..###  |    |    8.0    10.0   13.0 "
          "2.50 KiB\n"
      "  loss           |                   #|   19.0    19.0   19.0"
          "      8 B\n");
  // clang-format on
}

TEST(DrawStepTest, CollectivesOfOtherStepsAndFailedOnesAreLeftOut) {
  Recorder recorder = MadeRecorder();
  Record before = MadeBucket();
  before.label = "before";
  before.posted_ns = 99 * kMs;
  recorder.Add(before);
  Record after = MadeBucket();
  after.label = "after";
  after.posted_ns = 120 * kMs;
  recorder.Add(after);
  Record failed = MadeBucket();
  failed.label = "failed";
  failed.state = RecordState::kFailed;
  recorder.Add(failed);
  const std::string text = DrawStep(recorder, 4);
  EXPECT_THAT(text, Not(HasSubstr("before")));
  EXPECT_THAT(text, Not(HasSubstr("after")));
  EXPECT_THAT(text, Not(HasSubstr("failed")));
}

TEST(DrawStepTest, WhatEndsBeyondTheStepStaysOnTheAxis) {
  Recorder recorder = MadeRecorder();
  Record late = MadeBucket();
  late.posted_ns = 119 * kMs;
  late.matched_ns = 130 * kMs;
  late.done_ns = late.wait_began_ns = 140 * kMs;
  recorder.Add(late);
  EXPECT_THAT(DrawStep(recorder, 4, 20),
              HasSubstr("  bucket 0       |                   ||   19.0"));
}

TEST(DrawStepTest, NoLineIsLongerThan80Columns) {
  Recorder recorder(1023);
  recorder.AddPhase({"step", 999'999, 0, 999'999 * kMs / 10});
  recorder.AddPhase({"gradient sync", 999'999, 0, 999'999 * kMs / 10});
  Record record = MadeBucket();
  record.label = "a label that is longer than there is room for";
  record.bytes = (int64_t{1} << 40) - 1;
  record.posted_ns = record.matched_ns = record.done_ns = 99'999 * kMs;
  recorder.Add(record);
  std::istringstream lines(DrawStep(recorder, 999'999));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(DrawStepTest, AStepOfNoLengthIsStillAText) {
  Recorder recorder(0);
  recorder.AddPhase({"step", 0, 5, 5});
  recorder.AddPhase({"forward", 0, 5, 5});
  EXPECT_THAT(DrawStep(recorder, 0, 4), HasSubstr("  forward        |=   |"));
}

TEST(DrawStepTest, AStepThatWasNotRecordedOrHasNotEndedIsAnError) {
  Recorder recorder = MadeRecorder();
  EXPECT_THROW(DrawStep(recorder, 3), collectives::Error);
  recorder.AddPhase({"step", 6, 130 * kMs, 0});
  EXPECT_THROW(DrawStep(recorder, 6), collectives::Error);
}

}  // namespace
}  // namespace trainsys
