#include "trainsys/timeline/step_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kLeft = 124, kPxPerMs = (776 - kLeft) / 20;

struct Bar {
  double from_ms, to_ms, y;
};

// Of that class, without the legend's.
std::vector<Bar> Bars(const std::string& svg, const std::string& classes) {
  const std::regex regex("<rect class=\"" + classes +
                         "\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" "
                         "width=\"([0-9.]+)\"");
  std::vector<Bar> bars;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end;
       ++it) {
    if ((*it)[2] == "24") continue;
    const double x = std::stod((*it)[1]);
    bars.push_back({(x - kLeft) / kPxPerMs,
                    (x + std::stod((*it)[3]) - kLeft) / kPxPerMs,
                    std::stod((*it)[2])});
  }
  return bars;
}

MATCHER_P2(Lasts, from_ms, to_ms, "") {
  return std::abs(arg.from_ms - from_ms) < 0.01 &&
         std::abs(arg.to_ms - to_ms) < 0.01;
}

TEST(PictureOfStepTest, OneAxisHasAllPhasesAndCollectivesOfTheStep) {
  Recorder recorder = MadeRecorder();
  recorder.Add(MadeBucket());
  const std::string svg = PictureOfStep(recorder, 4);
  EXPECT_THAT(Bars(svg, "fill5"),
              testing::ElementsAre(Lasts(0, 5), Lasts(5, 15)));
  EXPECT_THAT(Bars(svg, "hollow stroke2 thin"),
              testing::ElementsAre(Lasts(8, 10)));
  EXPECT_THAT(Bars(svg, "fill2"), testing::ElementsAre(Lasts(10, 13)));
  EXPECT_THAT(
      svg,
      AllOf(HasSubstr(">Step 5 of rank 3, 20.0 ms</text>"),
            HasSubstr(">bucket 0: all-reduce of 2.5 KiB, posted 8.00 ms, "
                      "matched 10.00, done 13.00</title>"),
            HasSubstr("forward from 0.0 to 5.0 ms; backward from 5.0 to 15.0 "
                      "ms; 1 collectives"),
            HasSubstr("<line class=\"axis\" x1=\"613\" y1=\"80\" x2=\"613\""),
            Not(HasSubstr("optimizer"))));
}

TEST(PictureOfStepTest, ItIsAFileOfItsOwn) {
  EXPECT_THAT(PictureOfStep(MadeRecorder(), 4),
              AllOf(HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""),
                    HasSubstr("prefers-color-scheme: dark")));
}

TEST(PictureOfStepTest, EveryCollectiveHasARowBelowTheOneBefore) {
  Recorder recorder = MadeRecorder();
  for (int i = 0; i < 5; ++i) recorder.Add(MadeBucket());
  const std::vector<Bar> bars = Bars(PictureOfStep(recorder, 4), "fill2");
  ASSERT_EQ(bars.size(), 5u);
  for (size_t i = 1; i < bars.size(); ++i) {
    EXPECT_DOUBLE_EQ(bars[i].y - bars[i - 1].y, 18);
  }
}

TEST(PictureOfStepTest, CollectivesOfOtherStepsAndFailedOnesAreLeftOut) {
  Recorder recorder = MadeRecorder();
  Record before = MadeBucket();
  before.posted_ns = 99 * kMs;
  recorder.Add(before);
  Record after = MadeBucket();
  after.posted_ns = 120 * kMs;
  recorder.Add(after);
  Record failed = MadeBucket();
  failed.state = RecordState::kFailed;
  recorder.Add(failed);
  EXPECT_THAT(Bars(PictureOfStep(recorder, 4), "fill2"), testing::IsEmpty());
}

TEST(PictureOfStepTest, WhatIsShortOrEndsBeyondTheStepStaysOnTheAxis) {
  Recorder recorder = MadeRecorder();
  Record late = MadeBucket();
  late.posted_ns = 119 * kMs;
  late.matched_ns = 130 * kMs;
  late.done_ns = late.wait_began_ns = 140 * kMs;
  recorder.Add(late);
  Record sudden = MadeBucket();
  sudden.posted_ns = sudden.matched_ns = sudden.done_ns = 101 * kMs;
  recorder.Add(sudden);
  const double least_ms = 1.5 / kPxPerMs;
  EXPECT_THAT(
      Bars(PictureOfStep(recorder, 4), "fill2"),
      testing::ElementsAre(Lasts(20 - least_ms, 20), Lasts(1, 1 + least_ms)));
}

TEST(PictureOfStepTest, ManyCollectivesAreCutShortAndTheLastRowSaysSo) {
  Recorder recorder = MadeRecorder();
  for (int i = 0; i < 100; ++i) recorder.Add(MadeBucket());
  const std::string svg = PictureOfStep(recorder, 4);
  EXPECT_EQ(Bars(svg, "fill2").size(), 64u);
  EXPECT_THAT(svg, HasSubstr(">and 36 more collectives<"));
}

TEST(PictureOfStepTest, ALongLabelIsCutAndSaidWhole) {
  Recorder recorder = MadeRecorder();
  Record record = MadeBucket();
  record.label = "gradients of the <last> layers";
  recorder.Add(record);
  EXPECT_THAT(
      PictureOfStep(recorder, 4),
      AllOf(HasSubstr(">gradients of th...</text>"),
            HasSubstr("<title>gradients of the &lt;last&gt; layers: ")));
}

TEST(PictureOfStepTest, AStepOfNoLengthIsStillAPicture) {
  Recorder recorder(0);
  recorder.AddPhase({"step", 0, 5, 5});
  EXPECT_THAT(PictureOfStep(recorder, 0),
              AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan"))));
}

TEST(PictureOfStepTest, AStepThatWasNotRecordedOrHasNotEndedIsAnError) {
  Recorder recorder = MadeRecorder();
  EXPECT_THROW(PictureOfStep(recorder, 3), collectives::Error);
  recorder.AddPhase({"step", 6, 130 * kMs, 0});
  EXPECT_THROW(PictureOfStep(recorder, 6), collectives::Error);
}

}  // namespace
}  // namespace trainsys
