#include "collectives/record/recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/record/clock.h"

namespace collectives {
namespace {

Record Numbered(uint64_t sequence) {
  Record record;
  record.sequence = sequence;
  return record;
}

std::vector<uint64_t> Sequences(const Recorder& recorder) {
  std::vector<uint64_t> sequences;
  for (const Record& r : recorder.Records()) sequences.push_back(r.sequence);
  return sequences;
}

TEST(RecorderTest, KeepsTheOrderAndWritesItsRank) {
  Recorder recorder(3, 8);
  for (uint64_t i = 0; i < 5; ++i) recorder.Add(Numbered(i));
  EXPECT_EQ(Sequences(recorder), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(recorder.lost(), 0U);
  for (const Record& r : recorder.Records()) EXPECT_EQ(r.rank, 3);
}

TEST(RecorderTest, AFullRingKeepsTheNewestAndCountsTheLost) {
  Recorder recorder(0, 4);
  for (uint64_t i = 0; i < 11; ++i) {
    recorder.Add(Numbered(i));
    EXPECT_EQ(recorder.lost(), i < 4 ? 0 : i - 3);
  }
  EXPECT_EQ(Sequences(recorder), (std::vector<uint64_t>{7, 8, 9, 10}));
}

TEST(RecorderTest, FindsARecordUntilTheRingHasGonePastIt) {
  Recorder recorder(0, 4);
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < 6; ++i) numbers.push_back(recorder.Add(Numbered(i)));
  EXPECT_EQ(recorder.Find(numbers[1]), nullptr);
  ASSERT_NE(recorder.Find(numbers[2]), nullptr);
  EXPECT_EQ(recorder.Find(numbers[2])->sequence, 2U);
  EXPECT_EQ(recorder.Find(numbers[5])->sequence, 5U);
  EXPECT_EQ(recorder.Find(6), nullptr);
}

TEST(RecorderTest, ARingOfNothingLosesEverything) {
  Recorder recorder(0, 0);
  const uint64_t number = recorder.Add(Numbered(0));
  EXPECT_EQ(recorder.Find(number), nullptr);
  EXPECT_EQ(recorder.lost(), 1U);
  EXPECT_TRUE(recorder.Records().empty());
}

TEST(RecorderTest, PhasesNestAndEndWithTheirScope) {
  Recorder recorder(0, 2);
  const int64_t before_ns = NowNs();
  {
    const PhaseScope step(recorder, "step", 7);
    { const PhaseScope forward(recorder, "forward", 7); }
    ASSERT_EQ(recorder.Phases().size(), 2U);
    EXPECT_EQ(recorder.Phases()[0].end_ns, 0);
    EXPECT_NE(recorder.Phases()[1].end_ns, 0);
  }
  const PhaseRecord step = recorder.Phases()[0];
  const PhaseRecord forward = recorder.Phases()[1];
  EXPECT_EQ(step.name, "step");
  EXPECT_EQ(step.step, 7);
  EXPECT_EQ(forward.name, "forward");
  EXPECT_LE(before_ns, step.begin_ns);
  EXPECT_LE(step.begin_ns, forward.begin_ns);
  EXPECT_LE(forward.begin_ns, forward.end_ns);
  EXPECT_LE(forward.end_ns, step.end_ns);
}

TEST(RecorderTest, TheNewestPhasesStayAndTheLostAreCounted) {
  Recorder recorder(0, 3);
  const PhaseScope outlives_its_record(recorder, "run", -1);
  for (int64_t step = 0; step < 20; ++step) {
    const PhaseScope scope(recorder, "step", step);
  }
  const std::vector<PhaseRecord>& phases = recorder.Phases();
  ASSERT_GE(phases.size(), 3U);
  ASSERT_LE(phases.size(), 6U);
  EXPECT_EQ(recorder.lost_phases() + phases.size(), 21U);
  for (size_t i = 0; i < phases.size(); ++i) {
    EXPECT_EQ(phases[i].step, static_cast<int64_t>(20 - phases.size() + i));
    EXPECT_NE(phases[i].end_ns, 0);
  }
}

TEST(RecorderTest, APhaseOfAnyTimeIsKeptInItsPlace) {
  Recorder recorder(0, 2);
  const size_t number = recorder.AddPhase({"step", 3, -20, 0});
  recorder.AddPhase({"forward", 3, -10, -5});
  recorder.EndPhase(number);
  EXPECT_EQ(recorder.Phases()[0].begin_ns, -20);
  EXPECT_GT(recorder.Phases()[0].end_ns, 0);
  EXPECT_EQ(recorder.Phases()[1].name, "forward");
  EXPECT_EQ(recorder.Phases()[1].end_ns, -5);
}

// Whatever the ring's state was: not full, full, wrapped.
TEST(RecorderTest, PartsMakeTheSameRecorder) {
  for (const uint64_t added : {0, 3, 4, 5, 11}) {
    Recorder recorder(2, 4);
    for (uint64_t i = 0; i < added; ++i) recorder.Add(Numbered(i));
    for (int64_t i = 0; i < 9; ++i) recorder.AddPhase({"step", i, i, i + 1});
    RecorderParts parts = recorder.Parts();
    parts.clock = {-5, 3};
    Recorder made(parts);
    EXPECT_EQ(made.rank(), 2);
    EXPECT_EQ(made.lost(), recorder.lost());
    EXPECT_EQ(Sequences(made), Sequences(recorder));
    EXPECT_EQ(made.lost_phases(), 4U);
    ASSERT_EQ(made.Phases().size(), 5U);
    EXPECT_EQ(made.Phases()[0].step, 4);
    EXPECT_EQ(made.clock().offset_ns, -5);
    EXPECT_EQ(made.clock().error_ns, 3);
    for (const Record& r : made.Records()) EXPECT_EQ(r.rank, 2);
    if (added == 0) continue;
    ASSERT_NE(made.Find(added - 1), nullptr);
    EXPECT_EQ(made.Find(added - 1)->sequence, added - 1);
  }
}

TEST(RecordTest, WaitingForPeersAndForDataAreSeparate) {
  Record record;
  record.wait_began_ns = 100;
  record.wait_ended_ns = 200;
  record.matched_ns = 170;
  EXPECT_EQ(record.WaitedForPeersNs(), 70);
  EXPECT_EQ(record.WaitedForDataNs(), 30);
  record.matched_ns = 50;  // matched before the wait
  EXPECT_EQ(record.WaitedForPeersNs(), 0);
  EXPECT_EQ(record.WaitedForDataNs(), 100);
  record.matched_ns = 0;  // never matched
  EXPECT_EQ(record.WaitedForPeersNs(), 100);
  EXPECT_EQ(record.WaitedForDataNs(), 0);
}

TEST(RecordTest, NobodyHasWaitedInARecordThatIsOnlyPosted) {
  Record record;
  record.posted_ns = 100;
  EXPECT_EQ(record.WaitedForPeersNs(), 0);
  EXPECT_EQ(record.WaitedForDataNs(), 0);
}

}  // namespace
}  // namespace collectives
