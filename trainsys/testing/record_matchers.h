// What a test says of ranks' records, as sentences. For GoogleMock; a mismatch
// names the rank, the collective, and the times that are wrong.
//
// Example:
//   const auto recorders = RunRanks({.ranks = 4}, TrainOneStep);
//   EXPECT_THAT(recorders, Each(OverlapsBackward(/*step=*/0)));
//   EXPECT_THAT(recorders, Each(NothingInFlight()));
//   EXPECT_THAT(recorders, Each(MakesTheSameCollectivesAs(recorders[0])));
//   EXPECT_THAT(recorders[0].Records(), Contains(AllOf(IsBucket(), IsAsync(),
//                                                      HasLabel("bucket 3"))));
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "collectives/record/recorder.h"
#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {

using RecordMatcher = testing::Matcher<const collectives::Record&>;
using RecordsMatcher =
    testing::Matcher<const std::vector<collectives::Record>&>;
using RecorderMatcher = testing::Matcher<const collectives::Recorder&>;

// Of one record.

// A bucket of gradients; as IsBucket(record) has it.
RecordMatcher IsBucket();
// Posted by a Start... method: whoever posted it went on.
RecordMatcher IsAsync();
RecordMatcher IsDone();
RecordMatcher HasLabel(const testing::Matcher<const std::string&>& label);
// By rule: what a network would carry. For many records: Sends.
RecordMatcher SentBytes(const testing::Matcher<int64_t>& bytes);
RecordMatcher PostedDuring(const collectives::PhaseRecord& phase);
// The rank's first wait for it began when the phase had ended, or never.
RecordMatcher WaitedOnlyAfter(const collectives::PhaseRecord& phase);

// Of one rank.

// That phase was recorded, from its begin to its end.
RecorderMatcher HasPhase(const std::string& name, int64_t step);
// The records that were posted during that phase, oldest first; a phase that
// is not recorded does not match.
RecorderMatcher PostedDuring(const std::string& phase, int64_t step,
                             const RecordsMatcher& records);
// Backward ran above its reductions: of at least two buckets in the phase
// "step", all were posted during "backward", in order, and none was waited for
// before it ended.
RecorderMatcher OverlapsBackward(int64_t step);
// More than that: each was posted as soon as its gradients were there. See
// OverlapViolation.
RecorderMatcher OverlapsBackward(int64_t step,
                                 const std::vector<Bucket>& buckets,
                                 const std::vector<int64_t>& ready_ns);
// All that was posted is done or has failed.
RecorderMatcher NothingInFlight();
// Bytes by rule, of all records together.
RecorderMatcher Sends(const testing::Matcher<int64_t>& bytes);
// The same on each channel, in the same order: operation, reduction, type,
// elements, label, and whether it was recomputed. When does not matter.
RecorderMatcher MakesTheSameCollectivesAs(const collectives::Recorder& other);

}  // namespace trainsys

// How GoogleTest shows them.
namespace collectives {

void PrintTo(const Record& record, std::ostream* out);
void PrintTo(const Recorder& recorder, std::ostream* out);
void PrintTo(const PhaseRecord& phase, std::ostream* out);

}  // namespace collectives
