// Whole training steps for one bucket size after another, and what the timeline
// model says of them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/run_ranks.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/measure/findings.h"
#include "trainsys/measure/progress.h"
#include "trainsys/train/job.h"

namespace trainsys {

// 16 KiB, 32 KiB, ..., 16 MiB.
std::vector<int64_t> SweptBucketSizes();

struct BucketSweepOptions {
  // Of it: model, batch, recompute, lr and seed. ZeRO is stage 1, cut flat,
  // after all-reduced buckets.
  JobOptions job;
  std::vector<int> ranks = {2, 3, 4};
  std::vector<int64_t> bucket_bytes = SweptBucketSizes();
  int turns = 15;       // of each variant, after three that warm up
  int link_turns = 25;  // of each all-reduce alone
  // All ranks read one clock, as threads do: a step is from the first rank's
  // begin to the last one's end. Else it is the longest of the ranks' own.
  bool has_one_clock = true;
};

// The report's sweep: 24 layers, a row of 16 positions, which is short, so that
// what is sent shows beside what is computed. Its data has that context.
inline constexpr int64_t kSweepContext = 16;
BucketSweepOptions ReportSweep();

// For each number of ranks one run, in which all variants take turns, every
// other turn backwards: each bucket size; all gradients in one bucket, which is
// full when backward ends; and the same without sending it. Each variant has a
// model, buckets and an optimizer of its own. Then all-reduces alone. Where
// ranks are processes, every process makes the same call.
// Result: its sweeps where rank 0 runs.
// Blocks: for minutes.
// Errors: InvalidArgument for options that no job can have; Interrupted after
// the step that runs; RankFailed.
BucketFinding MeasureBuckets(collectives::RankRunner& runner,
                             const BucketSweepOptions& options,
                             const ByteDataset& data,
                             const MeasureProgress& progress);

}  // namespace trainsys
