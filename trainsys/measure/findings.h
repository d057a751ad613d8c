// What the one-page report says: the figures of one run, and what they were
// measured under. Plain values, which trainsys/measure fills and
// trainsys/report renders.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainsys/measure/interleaved.h"
#include "trainsys/memory/category.h"
#include "trainsys/memory/step_memory.h"
#include "trainsys/timeline/link.h"

namespace trainsys {

struct Conditions {
  std::string backend;  // "threads", "processes over Gloo"
  std::string date;     // "2026-11-30"
  std::string host;     // its CPU
  int cores = 0;
  // libtorch, BLAS with its kernel, compiler, ...
  std::vector<std::pair<std::string, std::string>> versions;
  std::string commit;  // "383dfa8", "383dfa8 and changes", "unknown"
  std::string command;
  std::string data;  // "made stories, 4 MiB"
  uint64_t seed = 0;
  double seconds = 0;  // the whole run took
};

// What a part of the report trained: TransformerLM.
struct TrainedModel {
  int64_t parameters = 0;
  int64_t vocab = 0, context = 0, dim = 0, layers = 0, heads = 0, ffn = 0;
  int64_t rows = 0;  // a rank and step
};

// ------------------------------------------------------------- 1. memory

// One job, compared on all its ranks at all points of a step.
struct MemoryCase {
  int ranks = 0;
  int zero = 0;           // stage; 0: DDP
  std::string recompute;  // "none" or "full"
  StepMemory budget;      // of rank 0, like all but the difference
  StepMemory ledger;
  int64_t peak_bytes = 0;  // of the step, temporaries included
  int64_t activation_peak_bytes = 0;
  // The largest |ledger - budget| of any rank, point and category.
  int64_t difference_bytes = 0;
  uint64_t parameter_hash = 0;  // after the last step
  int64_t steps = 0;
};

struct MemorySample {
  double ms = 0;  // since the step began
  MemorySplit split;
};

struct TimedPhase {
  std::string name;  // "forward", "backward", "gradient sync", "optimizer"
  double begin_ms = 0, end_ms = 0;
};

// What rank 0 held in the course of one step: from each sample to the next.
struct MemoryTimeline {
  int ranks = 0;
  int zero = 0;
  std::string recompute;
  std::vector<MemorySample> samples;  // by time
  std::vector<TimedPhase> phases;
};

struct MemoryFinding {
  TrainedModel model;
  int64_t bucket_bytes = 0;
  // Ranks 2, 3, 4 x stages 0, 1, 2 x recomputation none, full.
  std::vector<MemoryCase> cases;
  // Most ranks, ZeRO-1: none, then full.
  std::vector<MemoryTimeline> timelines;
};

// ------------------------------------------------------------- 2. buckets

struct BucketPoint {
  int64_t bucket_bytes = 0;  // the limit
  int64_t num_buckets = 0;
  Quartiles step_ms;  // measured: whole steps, over turns
  // Beyond the size whose median is least, turn by turn.
  Quartiles over_best_percent;
  double model_step_ms = 0;  // by the timeline model
  // Of it: from the last gradient to the last bucket's end.
  double model_exposed_ms = 0;
  double exposed_ms = 0;  // measured: median of phase "gradient sync"
};

// Of one number of ranks.
struct BucketSweep {
  int ranks = 0;
  int turns = 0;                    // of each variant, interleaved
  std::vector<BucketPoint> points;  // rising sizes
  // All gradients in one piece, after backward.
  Quartiles no_overlap_ms;
  Quartiles no_overlap_over_best_percent;  // as over_best_percent
  double model_no_overlap_ms = 0;
  // The ranks' steps without averaging.
  Quartiles alone_ms;
  // Medians of `alone`: they need not add up.
  double forward_ms = 0, backward_ms = 0, optimizer_ms = 0;
  Link link;  // fitted to:
  std::vector<LinkSample> samples;
};

struct BucketFinding {
  TrainedModel model;
  int zero = 0;
  std::string recompute;
  std::vector<BucketSweep> sweeps;  // 2, 3, 4 ranks
};

// ------------------------------------------------------- 3. recomputation

struct RecomputeCost {
  std::string policy;       // "none" first
  Quartiles step_ms;        // forward and backward on one rank, over turns
  Quartiles extra_percent;  // of the time of "none", turn by turn
  double model_extra_percent = 0;  // by the FLOPs of what runs twice
  int64_t saved_bytes = 0;         // activations after forward, by the ledger
  int64_t formula_bytes = 0;       // the same, in closed form
  int64_t peak_bytes = 0;          // activations at most, by the ledger
};

struct RecomputeFinding {
  TrainedModel model;
  int turns = 0;
  std::vector<RecomputeCost> costs;
};

// A part that was not measured has no case, sweep or cost.
struct Findings {
  bool is_interrupted = false;  // the parts after the last one are missing
  Conditions conditions;
  MemoryFinding memory;
  BucketFinding buckets;
  RecomputeFinding recompute;
};

}  // namespace trainsys
