#include "trainsys/report/answers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using enum MemoryCategory;

constexpr StepPoint kForward = StepPoint::kAfterForward;
constexpr int64_t kElementBytes = 4;  // f32
constexpr double kModelTiePercent = 0.5;

double PercentLess(int64_t less, int64_t whole) {
  if (whole == 0) return 0;
  return 100 * (1 - static_cast<double>(less) / static_cast<double>(whole));
}

double PercentBeyond(double a, double b) { return 100 * (a / b - 1); }

const MemoryCase& CaseOf(const MemoryFinding& memory, int ranks, int zero,
                         const std::string& recompute) {
  const MemoryCase* found = FindCase(memory, ranks, zero, recompute);
  if (found != nullptr) return *found;
  throw InvalidArgument(
      fmt::format("report: no memory of {} ranks, stage {}, recompute {}",
                  ranks, zero, recompute));
}

template <typename Figure>
size_t Least(const std::vector<BucketPoint>& points, Figure figure) {
  const auto least = std::min_element(points.begin(), points.end(),
                                      [&figure](const auto& a, const auto& b) {
                                        return figure(a) < figure(b);
                                      });
  return static_cast<size_t>(least - points.begin());
}

double MeasuredMs(const BucketPoint& point) { return point.step_ms.median; }
double ModelMs(const BucketPoint& point) { return point.model_step_ms; }

double LatencyMs(const BucketPoint& point, const Link& link) {
  return static_cast<double>(point.num_buckets) * link.latency_us / 1e3;
}

double BucketUs(const BucketPoint& smallest, const BucketPoint& best) {
  const int64_t more = smallest.num_buckets - best.num_buckets;
  if (more == 0 || IsAsFast(smallest)) return 0;
  return (MeasuredMs(smallest) - MeasuredMs(best)) * 1e3 /
         static_cast<double>(more);
}

// Of all sizes, wherever they lie: one that is off by chance ends nothing.
template <typename IsEqual, typename Figure>
EqualSizes FindEqual(const std::vector<BucketPoint>& points, size_t best,
                     IsEqual is_equal, Figure figure) {
  EqualSizes equal{.count = 0, .from = best, .to = best, .slowest = best};
  for (size_t i = 0; i < points.size(); ++i) {
    if (i != best && !is_equal(points[i])) continue;
    ++equal.count;
    equal.from = std::min(equal.from, i);
    equal.to = std::max(equal.to, i);
    if (figure(points[i]) > figure(points[equal.slowest])) equal.slowest = i;
  }
  return equal;
}

void CompareEnds(const BucketSweep& sweep, BucketAnswer& answer) {
  const BucketPoint& best = sweep.points[answer.best];
  const BucketPoint& smallest = sweep.points.front();
  const BucketPoint& largest = sweep.points.back();
  answer.is_smallest_equal = answer.equal.from == 0;
  answer.is_largest_equal = answer.equal.to + 1 == sweep.points.size();
  answer.smallest_over_best = MeasuredMs(smallest) / MeasuredMs(best);
  answer.smallest_more_ms = MeasuredMs(smallest) - MeasuredMs(best);
  answer.largest_more_ms = MeasuredMs(largest) - MeasuredMs(best);
  answer.smallest_latency_ms = LatencyMs(smallest, sweep.link);
  answer.best_latency_ms = LatencyMs(best, sweep.link);
  answer.latency_more_ms = answer.smallest_latency_ms - answer.best_latency_ms;
  answer.tail_more_ms = largest.exposed_ms - best.exposed_ms;
  answer.bucket_us = BucketUs(smallest, best);
}

void CompareWithModel(const std::vector<BucketPoint>& points,
                      BucketAnswer& answer) {
  const auto percent = [](const BucketPoint& point) {
    return PercentBeyond(ModelMs(point), MeasuredMs(point));
  };
  answer.farthest = Least(points, [&](const BucketPoint& point) {
    return -std::abs(percent(point));
  });
  answer.farthest_percent = percent(points[answer.farthest]);
  answer.best_percent = percent(points[answer.best]);
}

}  // namespace

bool IsAsFast(const BucketPoint& point) {
  return point.over_best_percent.low <= 0;
}

const MemoryCase* FindCase(const MemoryFinding& memory, int ranks, int zero,
                           const std::string& recompute) {
  for (const MemoryCase& c : memory.cases) {
    if (c.ranks == ranks && c.zero == zero && c.recompute == recompute) {
      return &c;
    }
  }
  return nullptr;
}

std::string NameOfStage(int zero) {
  return zero == 0 ? "DDP" : fmt::format("ZeRO-{}", zero);
}

std::vector<int> RanksOf(const MemoryFinding& memory) {
  std::set<int> ranks;
  for (const MemoryCase& c : memory.cases) ranks.insert(c.ranks);
  return {ranks.begin(), ranks.end()};
}

MemoryAnswer AnswerOf(const MemoryFinding& memory) {
  if (memory.cases.empty()) throw InvalidArgument("report: no memory cases");
  MemoryAnswer answer;
  answer.cases = static_cast<int64_t>(memory.cases.size());
  answer.points = kStepPoints.size();
  answer.categories = kMemoryCategories.size();
  for (const MemoryCase& c : memory.cases) {
    answer.difference_bytes =
        std::max(answer.difference_bytes, c.difference_bytes);
  }
  answer.ranks = RanksOf(memory).back();
  const auto held = [&](int zero, const char* recompute) {
    return CaseOf(memory, answer.ranks, zero, recompute).ledger[kForward];
  };
  const int64_t ddp_bytes = held(0, "full").Total();
  answer.zero1_saves_bytes = ddp_bytes - held(1, "full").Total();
  answer.zero2_saves_bytes = ddp_bytes - held(2, "full").Total();
  answer.zero2_buffer_bytes = held(2, "full")[kCommunication];
  const int64_t none = held(1, "none")[kActivation];
  const int64_t full = held(1, "full")[kActivation];
  answer.recompute_saves_bytes = none - full;
  answer.recompute_saves_percent = PercentLess(full, none);
  answer.recompute_saves_peak_percent = PercentLess(
      CaseOf(memory, answer.ranks, 1, "full").activation_peak_bytes,
      CaseOf(memory, answer.ranks, 1, "none").activation_peak_bytes);
  return answer;
}

BucketAnswer AnswerOf(const BucketSweep& sweep, int64_t parameters) {
  const std::vector<BucketPoint>& points = sweep.points;
  if (points.empty()) throw InvalidArgument("report: a sweep without sizes");
  BucketAnswer answer;
  answer.best = Least(points, MeasuredMs);
  answer.model_best = Least(points, ModelMs);
  answer.equal = FindEqual(points, answer.best, IsAsFast, MeasuredMs);
  const double model_most_ms =
      ModelMs(points[answer.model_best]) * (1 + kModelTiePercent / 100);
  answer.model_equal = FindEqual(
      points, answer.model_best,
      [&](const BucketPoint& point) { return ModelMs(point) <= model_most_ms; },
      ModelMs);
  while (answer.same_to + 1 < points.size() &&
         points[answer.same_to + 1].num_buckets == points[0].num_buckets) {
    ++answer.same_to;
  }
  CompareEnds(sweep, answer);
  answer.no_overlap_over_best =
      sweep.no_overlap_ms.median / MeasuredMs(points[answer.best]);
  CompareWithModel(points, answer);
  const BucketPoint& farthest = points[answer.farthest];
  const double gradient_bytes = static_cast<double>(parameters * kElementBytes);
  answer.transfer_ms = gradient_bytes / sweep.link.bytes_per_us / 1e3;
  answer.added_ms = MeasuredMs(farthest) - sweep.alone_ms.median;
  answer.collectives_ms = LatencyMs(farthest, sweep.link) + answer.transfer_ms;
  answer.fit_error_percent = 100 * WorstFitError(sweep.link, sweep.samples);
  return answer;
}

size_t SweepToShow(const BucketFinding& buckets, int cores) {
  if (buckets.sweeps.empty()) throw InvalidArgument("report: no bucket sweeps");
  size_t show = 0;
  for (size_t i = 0; i < buckets.sweeps.size(); ++i) {
    const int ranks = buckets.sweeps[i].ranks;
    const int shown = buckets.sweeps[show].ranks;
    const bool fits = ranks <= cores;
    if (fits ? ranks > shown || shown > cores : ranks < shown) show = i;
  }
  return show;
}

std::vector<RecomputeAnswer> AnswersOf(const RecomputeFinding& recompute) {
  if (recompute.costs.empty() || recompute.costs[0].policy != "none") {
    throw InvalidArgument("report: recomputation needs policy none first");
  }
  const RecomputeCost& none = recompute.costs[0];
  std::vector<RecomputeAnswer> answers;
  for (const RecomputeCost& cost : recompute.costs) {
    RecomputeAnswer answer;
    answer.saves_percent = PercentLess(cost.saved_bytes, none.saved_bytes);
    answer.peak_saves_percent = PercentLess(cost.peak_bytes, none.peak_bytes);
    answer.beyond_model_points =
        cost.extra_percent.median - cost.model_extra_percent;
    answer.forward_share_percent =
        100 * cost.model_extra_percent / kForwardPercent;
    answers.push_back(answer);
  }
  return answers;
}

}  // namespace trainsys
