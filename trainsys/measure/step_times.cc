#include "trainsys/measure/step_times.h"

#include <algorithm>
#include <functional>

#include "trainsys/measure/interleaved.h"
#include "trainsys/timeline/bucket_timeline.h"

namespace trainsys {
namespace {

using Figure = std::function<double(const StepTimes&)>;

Quartiles QuartilesOf(const MeasuredSteps& steps, const Figure& figure) {
  return OverTurns(steps.turns.size(),
                   [&](size_t turn) { return figure(steps.turns[turn]); });
}

double MedianOf(const MeasuredSteps& steps, const Figure& figure) {
  return QuartilesOf(steps, figure).median;
}

double WholeMs(const StepTimes& times) { return times.whole_ms(); }

std::vector<double> MedianReadyUs(const MeasuredSteps& steps) {
  std::vector<double> ready_us;
  for (size_t p = 0; p < steps.turns.at(0).ready_us.size(); ++p) {
    ready_us.push_back(MedianOf(
        steps, [p](const StepTimes& times) { return times.ready_us[p]; }));
  }
  return ready_us;
}

// A step by the timeline model.
struct ModelStep {
  double whole_ms = 0;
  double exposed_ms = 0;
};

class Model {
 public:
  Model(const BucketSweep& sweep, const MeasuredSweep& measured)
      : beside_ms_(sweep.forward_ms + sweep.optimizer_ms),
        backward_us_(sweep.backward_ms * 1e3),
        link_(sweep.link),
        ready_us_(MedianReadyUs(measured.alone)),
        elem_bytes_(measured.elem_bytes) {}

  ModelStep Of(const std::vector<Bucket>& plan) const {
    const BucketTimeline timeline =
        TimelineOf(BucketsOf(plan), link_, backward_us_);
    return {beside_ms_ + timeline.total_us / 1e3, timeline.exposed_us / 1e3};
  }
  double NoOverlapMs(const std::vector<Bucket>& plan) const {
    return beside_ms_ + NoOverlapUs(BucketsOf(plan), link_, backward_us_) / 1e3;
  }

 private:
  std::vector<ReadyBucket> BucketsOf(const std::vector<Bucket>& plan) const {
    return ReadyBuckets(plan, ready_us_, elem_bytes_);
  }

  const double beside_ms_;  // what is neither backward nor sent
  const double backward_us_;
  const Link link_;
  const std::vector<double> ready_us_;
  const int64_t elem_bytes_;
};

BucketPoint PointOf(const MeasuredSteps& steps, const Model& model) {
  const ModelStep modelled = model.Of(steps.plan);
  BucketPoint point;
  point.bucket_bytes = steps.bucket_bytes;
  point.num_buckets = static_cast<int64_t>(steps.plan.size());
  point.step_ms = QuartilesOf(steps, WholeMs);
  point.model_step_ms = modelled.whole_ms;
  point.model_exposed_ms = modelled.exposed_ms;
  point.exposed_ms =
      MedianOf(steps, [](const StepTimes& times) { return times.sync_ms; });
  return point;
}

}  // namespace

StepMarks SinceBegin(StepMarks marks) {
  const int64_t minus_begin = marks[kMinusBegin];
  for (int64_t& mark : marks) mark += minus_begin;
  marks[kMinusBegin] = 0;
  return marks;
}

StepTimes TimesOf(std::span<const int64_t> marks) {
  const auto ns = [&marks](StepMark from, size_t to) {
    return static_cast<double>(marks[to] - marks[from]);
  };
  StepTimes times;
  times.forward_ms =
      static_cast<double>(marks[kForwardEnd] + marks[kMinusBegin]) / 1e6;
  times.backward_ms = ns(kForwardEnd, kBackwardEnd) / 1e6;
  times.sync_ms = ns(kBackwardEnd, kSyncEnd) / 1e6;
  times.optimizer_ms = ns(kSyncEnd, kOptimizerEnd) / 1e6;
  for (size_t at = kFirstReady; at < marks.size(); ++at) {
    times.ready_us.push_back(ns(kForwardEnd, at) / 1e3);
  }
  return times;
}

BucketSweep FiguresOf(const MeasuredSweep& measured) {
  const MeasuredSteps& alone = measured.alone;
  BucketSweep sweep;
  sweep.ranks = measured.ranks;
  sweep.turns = static_cast<int>(alone.turns.size());
  sweep.no_overlap_ms = QuartilesOf(measured.no_overlap, WholeMs);
  sweep.alone_ms = QuartilesOf(alone, WholeMs);
  sweep.forward_ms =
      MedianOf(alone, [](const StepTimes& times) { return times.forward_ms; });
  sweep.backward_ms =
      MedianOf(alone, [](const StepTimes& times) { return times.backward_ms; });
  sweep.optimizer_ms = MedianOf(
      alone, [](const StepTimes& times) { return times.optimizer_ms; });
  sweep.samples = measured.samples;
  sweep.link = FitLink(sweep.samples);
  const Model model(sweep, measured);
  sweep.model_no_overlap_ms = model.NoOverlapMs(measured.no_overlap.plan);
  for (const MeasuredSteps& steps : measured.sizes) {
    sweep.points.push_back(PointOf(steps, model));
  }
  return sweep;
}

}  // namespace trainsys
