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

// A step by the timeline model.
struct ModelStep {
  double whole_ms = 0;
  double exposed_ms = 0;
};

// Each turn of the steps without averaging, and what the model adds to it;
// then the medians: those of the parts would not add up to a step's.
class Model {
 public:
  Model(const Link& link, const MeasuredSweep& measured)
      : link_(link), measured_(measured) {}

  ModelStep Of(const std::vector<Bucket>& plan) const {
    const auto timeline = [&](const StepTimes& times) {
      return TimelineOf(BucketsOf(plan, times), link_, times.backward_ms * 1e3);
    };
    return {MedianMs([&](const StepTimes& times) {
              return BesideMs(times) + timeline(times).total_us / 1e3;
            }),
            MedianMs([&](const StepTimes& times) {
              return timeline(times).exposed_us / 1e3;
            })};
  }
  double NoOverlapMs(const std::vector<Bucket>& plan) const {
    return MedianMs([&](const StepTimes& times) {
      return BesideMs(times) + NoOverlapUs(BucketsOf(plan, times), link_,
                                           times.backward_ms * 1e3) /
                                   1e3;
    });
  }

 private:
  double MedianMs(const Figure& figure) const {
    return MedianOf(measured_.alone, figure);
  }
  // What is neither backward nor sent.
  static double BesideMs(const StepTimes& times) {
    return times.whole_ms() - times.backward_ms;
  }
  std::vector<ReadyBucket> BucketsOf(const std::vector<Bucket>& plan,
                                     const StepTimes& times) const {
    return ReadyBuckets(plan, times.ready_us, measured_.elem_bytes);
  }

  const Link link_;
  const MeasuredSweep& measured_;
};

// How much longer than those of `best`, turn by turn, in percent.
Quartiles OverPercent(const MeasuredSteps& steps, const MeasuredSteps& best) {
  const size_t turns = std::min(steps.turns.size(), best.turns.size());
  return OverTurns(turns, [&](size_t turn) {
    return 100 * (WholeMs(steps.turns[turn]) / WholeMs(best.turns[turn]) - 1);
  });
}

// The size whose median is least.
const MeasuredSteps& BestOf(const std::vector<MeasuredSteps>& sizes) {
  return *std::min_element(sizes.begin(), sizes.end(),
                           [](const auto& a, const auto& b) {
                             return MedianOf(a, WholeMs) < MedianOf(b, WholeMs);
                           });
}

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
  const Model model(sweep.link, measured);
  sweep.model_no_overlap_ms = model.NoOverlapMs(measured.no_overlap.plan);
  if (measured.sizes.empty()) return sweep;
  const MeasuredSteps& best = BestOf(measured.sizes);
  for (const MeasuredSteps& steps : measured.sizes) {
    sweep.points.push_back(PointOf(steps, model));
    sweep.points.back().over_best_percent = OverPercent(steps, best);
  }
  sweep.no_overlap_over_best_percent = OverPercent(measured.no_overlap, best);
  return sweep;
}

}  // namespace trainsys
