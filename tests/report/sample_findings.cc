#include "tests/report/sample_findings.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "trainsys/budget/step_budget.h"

namespace trainsys {
namespace {

using enum MemoryCategory;

constexpr int64_t kRows = 4;

Conditions MadeConditions() {
  return {.backend = "threads",
          .date = "2026-11-30",
          .host = "a processor of 2 cores <&>",
          .cores = 2,
          .versions = {{"libtorch", "1.13.1"},
                       {"OpenBLAS", "0.3.21, kernel Zen, one thread a rank"},
                       {"compiler", "g++ 12.2.0"}},
          .commit = "383dfa8",
          .command = "bazel run //tools:report -- --out /tmp/report",
          .data = "made stories, 4 MiB",
          .seed = 1,
          .seconds = 214.25};
}

TrainedModel ModelOf(int64_t layers, int64_t rows, int64_t context) {
  const TransformerConfig config{.context = context, .layers = layers};
  return {.parameters = ParameterCount(config),
          .vocab = config.vocab,
          .context = config.context,
          .dim = config.dim,
          .layers = config.layers,
          .heads = config.heads,
          .ffn = config.ffn,
          .rows = rows};
}

TransformerJobShape ShapeOf(int ranks, int zero, const std::string& recompute) {
  TransformerJobShape shape;
  shape.rows = kRows;
  shape.plan = PlanOfPolicy(recompute, shape.model.layers);
  shape.states = {
      .zero_stage = zero, .ranks = ranks, .bucket_bytes = 512 << 10};
  return shape;
}

MemoryCase CaseOf(int ranks, int zero, const std::string& recompute) {
  const TransformerJobShape shape = ShapeOf(ranks, zero, recompute);
  const StepMemory budget = StepBudgetOf(shape);
  const int64_t peak = PeakSavedBytes(
      shape.model, {shape.rows, shape.positions, 4, shape.libtorch},
      shape.plan);
  const int64_t states = budget[StepPoint::kConstructed].Total();
  return {.ranks = ranks,
          .zero = zero,
          .recompute = recompute,
          .budget = budget,
          .ledger = budget,
          .peak_bytes = states + peak + 5'242'888,
          .activation_peak_bytes = peak,
          .difference_bytes = 0,
          .parameter_hash = 0x887a389125ac1253 + static_cast<uint64_t>(ranks),
          .steps = 3};
}

// Activations rise through forward and fall through backward, block by block;
// recomputed ones come back for one block at a time.
MemoryTimeline TimelineOf(const MemoryCase& c) {
  constexpr int kSamples = 200;
  const double backward_ms = c.recompute == "full" ? 150 : 110;
  const double step_ms = 60 + backward_ms + 12;
  MemoryTimeline timeline{c.ranks, c.zero, c.recompute, {}, {}};
  timeline.phases = {{"forward", 0, 60},
                     {"backward", 60, 60 + backward_ms},
                     {"gradient sync", 60 + backward_ms, 61 + backward_ms},
                     {"optimizer", 61 + backward_ms, step_ms}};
  const MemorySplit& base = c.budget[StepPoint::kConstructed];
  const int64_t saved = c.budget[StepPoint::kAfterForward][kActivation];
  for (int i = 0; i < kSamples; ++i) {
    const double ms = step_ms * i / kSamples;
    MemorySplit split = base;
    const double share = ms < 60 ? ms / 60 : 1 - (ms - 60) / backward_ms;
    if (share > 0) {
      split[kActivation] = static_cast<int64_t>(share * saved);
      split[kInput] = 2 * kRows * 256 * 8;
      split[kTemporary] = 1'000'000 + (i % 7) * 600'000;
      if (c.recompute == "full" && ms > 60 && i % 25 < 18) {
        split[kActivation] += (c.activation_peak_bytes - saved) * 9 / 10;
      }
    }
    timeline.samples.push_back({ms, split});
  }
  return timeline;
}

MemoryFinding MadeMemory() {
  MemoryFinding memory{ModelOf(4, kRows, 256), 512 << 10, {}, {}};
  for (const int ranks : {2, 3, 4}) {
    for (const int zero : {0, 1, 2}) {
      for (const char* recompute : {"none", "full"}) {
        memory.cases.push_back(CaseOf(ranks, zero, recompute));
      }
    }
  }
  for (const char* recompute : {"none", "full"}) {
    memory.timelines.push_back(TimelineOf(CaseOf(4, 1, recompute)));
  }
  return memory;
}

BucketSweep SweepOf(int ranks, int64_t gradient_bytes) {
  BucketSweep sweep;
  sweep.ranks = ranks;
  sweep.turns = 9;
  sweep.link = {.latency_us = 20.0 * ranks, .bytes_per_us = 2800.0 / ranks};
  for (const int64_t kib : {4, 64, 1024, 21'000}) {
    const int64_t bytes = kib << 10;
    sweep.samples.push_back({bytes, sweep.link.TimeUs(bytes) * 1.03});
  }
  sweep.forward_ms = 30.0 * ranks;
  sweep.backward_ms = 85.0 * ranks;
  sweep.optimizer_ms = 4.0 * ranks;
  const double alone = 119.0 * ranks;
  sweep.alone_ms = {alone - 2, alone, alone + 4};
  const double whole_ms = sweep.link.TimeUs(gradient_bytes) / 1e3;
  sweep.model_no_overlap_ms = alone + whole_ms;
  sweep.no_overlap_ms = {alone + whole_ms + 8, alone + whole_ms + 12,
                         alone + whole_ms + 19};
  for (int64_t bytes = 16 << 10; bytes <= 16 << 20; bytes *= 2) {
    BucketPoint point;
    point.bucket_bytes = bytes;
    const int64_t smallest = 65'536;  // a tensor of the model
    point.num_buckets = gradient_bytes / std::max(bytes, smallest) + 1;
    const double tail_ms = std::min(whole_ms, sweep.link.TimeUs(bytes) / 1e3);
    const double latency_ms =
        static_cast<double>(point.num_buckets) * sweep.link.latency_us / 1e3;
    point.model_exposed_ms = tail_ms;
    point.exposed_ms = 1.4 * tail_ms + 0.6;
    point.model_step_ms = alone + tail_ms + latency_ms / 3;
    const double median =
        alone + 6 + 1.4 * tail_ms + 0.9 * latency_ms + 0.3 * ranks;
    point.step_ms = {median - 1.5, median, median + 2.5};
    sweep.points.push_back(point);
  }
  double best_ms = sweep.points[0].step_ms.median;
  for (const BucketPoint& point : sweep.points) {
    best_ms = std::min(best_ms, point.step_ms.median);
  }
  const auto over = [best_ms](const Quartiles& step_ms) -> Quartiles {
    const double percent = 100 * (step_ms.median / best_ms - 1);
    return {percent - 0.8, percent, percent + 1.2};
  };
  for (BucketPoint& point : sweep.points) {
    point.over_best_percent = over(point.step_ms);
    if (point.step_ms.median == best_ms) point.over_best_percent = {};
  }
  sweep.no_overlap_over_best_percent = over(sweep.no_overlap_ms);
  return sweep;
}

BucketFinding MadeBuckets() {
  BucketFinding buckets{ModelOf(24, 1, 128), 1, "full", {}};
  for (const int ranks : {2, 3, 4}) {
    buckets.sweeps.push_back(SweepOf(ranks, 4 * buckets.model.parameters));
  }
  return buckets;
}

RecomputeCost CostOf(const std::string& policy, double extra_percent,
                     double model_percent) {
  const TransformerJobShape shape = ShapeOf(1, 0, policy);
  const ForwardShape forward{shape.rows, shape.positions, 4, shape.libtorch};
  const int64_t saved =
      SavedAfterForward(shape.model, forward, shape.plan).total();
  const double ms = 180 * (1 + extra_percent / 100);
  return {.policy = policy,
          .step_ms = {ms - 1.5, ms, ms + 2},
          .extra_percent = {extra_percent - 0.8, extra_percent,
                            extra_percent + 1.1},
          .model_extra_percent = model_percent,
          .saved_bytes = saved,
          .formula_bytes = saved,
          .peak_bytes = PeakSavedBytes(shape.model, forward, shape.plan)};
}

RecomputeFinding MadeRecompute() {
  RecomputeFinding recompute{ModelOf(4, kRows, 256), 20, {}};
  recompute.costs = {CostOf("none", 0, 0), CostOf("selective", 9.25, 5.5),
                     CostOf("every-4", 6, 7.9), CostOf("every-2", 12.2, 15.9),
                     CostOf("full", 25.1, 31.7)};
  recompute.costs[0].extra_percent = {0, 0, 0};
  return recompute;
}

}  // namespace

Findings SampleFindings() {
  return {.conditions = MadeConditions(),
          .memory = MadeMemory(),
          .buckets = MadeBuckets(),
          .recompute = MadeRecompute()};
}

}  // namespace trainsys
