// What follows from the findings: the figures that the report's sentences
// speak of. Pure.
//
// Errors of all functions: InvalidArgument where what they speak of was not
// measured: no case of that stage, no point, no policy "none".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/measure/findings.h"

namespace trainsys {

struct MemoryAnswer {
  int64_t cases = 0;
  int64_t points = 0;  // of a step at which they were compared
  int64_t categories = 0;
  int64_t difference_bytes = 0;  // the largest of all cases
  // Of rank 0 with the most ranks, after forward, with full recomputation:
  // what the stages take off DDP's total.
  int ranks = 0;
  int64_t zero1_saves_bytes = 0;
  int64_t zero2_saves_bytes = 0;
  int64_t zero2_buffer_bytes = 0;  // less by these
  // What full recomputation takes off the activations, with ZeRO-1.
  int64_t recompute_saves_bytes = 0;
  double recompute_saves_percent = 0;
  double recompute_saves_peak_percent = 0;
};

MemoryAnswer AnswerOf(const MemoryFinding& memory);

// The case of so many ranks, or null.
const MemoryCase* FindCase(const MemoryFinding& memory, int ranks, int zero,
                           const std::string& recompute);

// "DDP", "ZeRO-1".
std::string NameOfStage(int zero);

// Numbers of ranks, rising.
std::vector<int> RanksOf(const MemoryFinding& memory);

// Of a sweep's sizes those that nothing sets apart.
struct EqualSizes {
  size_t count = 0;
  size_t from = 0, to = 0;  // the smallest and the largest
  size_t slowest = 0;       // of them

  bool AreAllBetween() const { return count == to - from + 1; }
};

struct BucketAnswer {
  size_t best = 0;         // points[best] took the least, measured: median
  size_t model_best = 0;   // by the model
  EqualSizes equal;        // as fast as the best
  EqualSizes model_equal;  // within half a percent of the model's best
  bool is_smallest_equal = false, is_largest_equal = false;

  // The largest that makes as many buckets as the smallest: a parameter is not
  // split.
  size_t same_to = 0;

  double smallest_over_best = 0, no_overlap_over_best = 0;
  double smallest_more_ms = 0, largest_more_ms = 0;  // than the best
  double smallest_latency_ms = 0;                    // num_buckets x alpha
  double best_latency_ms = 0;
  double latency_more_ms = 0;  // the smallest than the best
  double tail_more_ms = 0;     // exposed: the largest than the best
  double transfer_ms = 0;      // all gradients / beta
  // Where the model is farthest off: beyond the steps without averaging; and
  // its all-reduces alone, latency and transfer.
  double added_ms = 0;
  double collectives_ms = 0;
  // What a bucket more costs in a step: from the best to the smallest size.
  // 0 where that is as fast, or has as many buckets.
  double bucket_us = 0;
  // The model's step over the measured one, - 1, in percent: where it is
  // farthest off, and at the best.
  size_t farthest = 0;
  double farthest_percent = 0;
  double best_percent = 0;
  double fit_error_percent = 0;  // of alpha and beta, the worst sample's
};

// No longer than the best in a quarter of the turns or more.
bool IsAsFast(const BucketPoint& point);

// `parameters`: of the model, f32.
BucketAnswer AnswerOf(const BucketSweep& sweep, int64_t parameters);

// The sweep to show: the most ranks that have a core each, else the fewest.
size_t SweepToShow(const BucketFinding& buckets, int cores);

// One more forward, in percent of forward and backward: a third.
inline constexpr double kForwardPercent = 100.0 / 3;

struct RecomputeAnswer {
  double saves_percent = 0;          // of the activations after forward
  double peak_saves_percent = 0;     // of their peak
  double beyond_model_points = 0;    // measured extra - the model's
  double forward_share_percent = 0;  // of a forward, that runs twice by FLOPs
};

// One for each of recompute.costs.
std::vector<RecomputeAnswer> AnswersOf(const RecomputeFinding& recompute);

}  // namespace trainsys
