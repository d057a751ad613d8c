// How long a step's parts took, over all ranks; and what follows from many
// steps. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/measure/findings.h"
#include "trainsys/timeline/link.h"

namespace trainsys {

// What one rank sees of a step: NowNs() where each part ends, the begin
// negated, then when each parameter's gradient was ready. So the largest of all
// ranks' marks say when the first rank began and when the last one was there.
enum StepMark : size_t {
  kMinusBegin,
  kForwardEnd,
  kBackwardEnd,
  kSyncEnd,
  kOptimizerEnd,
  kFirstReady,
};
using StepMarks = std::vector<int64_t>;

// The marks since the rank's own begin, for ranks whose clocks differ.
StepMarks SinceBegin(StepMarks marks);

// From when the last rank was done with the part before to when it was with
// this one: so they add up to the whole.
struct StepTimes {
  double forward_ms = 0;
  double backward_ms = 0;
  double sync_ms = 0;  // from the last gradient to the last average
  double optimizer_ms = 0;
  std::vector<double> ready_us;  // since backward began, of each parameter

  double whole_ms() const {
    return forward_ms + backward_ms + sync_ms + optimizer_ms;
  }
};

// `marks`: the largest of all ranks'.
StepTimes TimesOf(std::span<const int64_t> marks);

// One way to step.
struct MeasuredSteps {
  int64_t bucket_bytes = 0;
  std::vector<Bucket> plan;
  std::vector<StepTimes> turns;
};

struct MeasuredSweep {
  int ranks = 0;
  int64_t elem_bytes = 4;  // of a gradient's element
  std::vector<MeasuredSteps> sizes;
  MeasuredSteps no_overlap;  // one bucket
  MeasuredSteps alone;       // nothing is sent
  std::vector<LinkSample> samples;
};

// Medians and quartiles; how much longer each is than the size whose median is
// least, turn by turn, as turns are taken together and drift alike; the link
// that fits the samples; and the model's steps: turn by turn `alone`, with the
// buckets on that link.
BucketSweep FiguresOf(const MeasuredSweep& measured);

}  // namespace trainsys
