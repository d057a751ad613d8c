#include "trainsys/report/findings_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "trainsys/report/answers.h"
#include "trainsys/report/memory_formulas.h"

namespace trainsys {
namespace {

using json = nlohmann::ordered_json;

std::string SnakeCase(std::string_view name) {
  std::string snake(name);
  std::replace(snake.begin(), snake.end(), ' ', '_');
  return snake;
}

json Finite(double value) {
  return std::isfinite(value) ? json(value) : json();
}

json AsJson(const Quartiles& q) {
  return {{"low", Finite(q.low)},
          {"median", Finite(q.median)},
          {"high", Finite(q.high)}};
}

json AsJson(const Conditions& c) {
  json versions = json::array();
  for (const auto& [name, version] : c.versions) {
    versions.push_back({{"name", name}, {"version", version}});
  }
  return {{"backend", c.backend}, {"date", c.date},
          {"host", c.host},       {"cores", c.cores},
          {"versions", versions}, {"commit", c.commit},
          {"command", c.command}, {"data", c.data},
          {"seed", c.seed},       {"seconds", Finite(c.seconds)}};
}

json AsJson(const TrainedModel& m) {
  return {{"parameters", m.parameters},
          {"vocab", m.vocab},
          {"context", m.context},
          {"dim", m.dim},
          {"layers", m.layers},
          {"heads", m.heads},
          {"ffn", m.ffn},
          {"rows", m.rows}};
}

json AsJson(const MemorySplit& split) {
  json out;
  for (const MemoryCategory c : kMemoryCategories) {
    out[SnakeCase(Name(c))] = split[c];
  }
  out["total"] = split.Total();
  return out;
}

json AsJson(const StepMemory& memory) {
  json out;
  for (const StepPoint point : kStepPoints) {
    out[SnakeCase(Name(point))] = AsJson(memory[point]);
  }
  return out;
}

json AsJson(const MemoryCase& c) {
  return {{"ranks", c.ranks},
          {"zero", c.zero},
          {"recompute", c.recompute},
          {"steps", c.steps},
          {"parameter_hash", fmt::format("{:016x}", c.parameter_hash)},
          {"difference_bytes", c.difference_bytes},
          {"peak_bytes", c.peak_bytes},
          {"activation_peak_bytes", c.activation_peak_bytes},
          {"budget_bytes", AsJson(c.budget)},
          {"ledger_bytes", AsJson(c.ledger)}};
}

int64_t PeakBytes(const MemoryTimeline& timeline) {
  int64_t peak = 0;
  for (const MemorySample& sample : timeline.samples) {
    peak = std::max(peak, sample.split.Total());
  }
  return peak;
}

// Samples as columns: there are hundreds.
json AsJson(const MemoryTimeline& timeline) {
  json phases = json::array();
  for (const TimedPhase& phase : timeline.phases) {
    phases.push_back({{"name", phase.name},
                      {"begin_ms", Finite(phase.begin_ms)},
                      {"end_ms", Finite(phase.end_ms)}});
  }
  json ms = json::array();
  for (const MemorySample& s : timeline.samples) ms.push_back(Finite(s.ms));
  json bytes;
  for (const MemoryCategory c : kMemoryCategories) {
    json& column = bytes[SnakeCase(Name(c))] = json::array();
    for (const MemorySample& s : timeline.samples) column.push_back(s.split[c]);
  }
  return {{"ranks", timeline.ranks},
          {"zero", timeline.zero},
          {"recompute", timeline.recompute},
          {"peak_bytes", PeakBytes(timeline)},
          {"phases", phases},
          {"samples_ms", ms},
          {"samples_bytes", bytes}};
}

json AsJson(const FormulaLine& line) {
  return {{"what", line.what},
          {"formula", line.formula},
          {"numbers", line.numbers},
          {"formula_bytes", line.formula_bytes},
          {"ledger_bytes", line.ledger_bytes},
          {"difference_bytes", line.difference_bytes()}};
}

json AsJson(const MemoryAnswer& a) {
  return {
      {"cases", a.cases},
      {"points", a.points},
      {"categories", a.categories},
      {"difference_bytes", a.difference_bytes},
      {"ranks", a.ranks},
      {"zero1_saves_bytes", a.zero1_saves_bytes},
      {"zero2_saves_bytes", a.zero2_saves_bytes},
      {"zero2_buffer_bytes", a.zero2_buffer_bytes},
      {"recompute_saves_bytes", a.recompute_saves_bytes},
      {"recompute_saves_percent", Finite(a.recompute_saves_percent)},
      {"recompute_saves_peak_percent", Finite(a.recompute_saves_peak_percent)}};
}

json AsJson(const BucketPoint& p) {
  return {{"bucket_bytes", p.bucket_bytes},
          {"num_buckets", p.num_buckets},
          {"step_ms", AsJson(p.step_ms)},
          {"over_best_percent", AsJson(p.over_best_percent)},
          {"model_step_ms", Finite(p.model_step_ms)},
          {"exposed_ms", Finite(p.exposed_ms)},
          {"model_exposed_ms", Finite(p.model_exposed_ms)}};
}

json AsJson(const LinkSample& sample) {
  return {{"bytes", sample.bytes}, {"us", Finite(sample.us)}};
}

template <typename Things>
json List(const Things& things) {
  json out = json::array();
  for (const auto& thing : things) out.push_back(AsJson(thing));
  return out;
}

json AsJson(const MemoryFinding& memory) {
  const MemoryAnswer answer = AnswerOf(memory);
  return {{"model", AsJson(memory.model)},
          {"bucket_bytes", memory.bucket_bytes},
          {"answer", AsJson(answer)},
          {"letters", FormulaLetters(memory, answer.ranks)},
          {"formulas", List(FormulaLines(memory, answer.ranks))},
          {"cases", List(memory.cases)},
          {"timelines", List(memory.timelines)}};
}

json AsJson(const BucketAnswer& a, const std::vector<BucketPoint>& points) {
  return {{"best_bytes", points[a.best].bucket_bytes},
          {"model_best_bytes", points[a.model_best].bucket_bytes},
          {"equal_sizes", a.equal.count},
          {"equal_from_bytes", points[a.equal.from].bucket_bytes},
          {"equal_to_bytes", points[a.equal.to].bucket_bytes},
          {"model_equal_sizes", a.model_equal.count},
          {"model_equal_from_bytes", points[a.model_equal.from].bucket_bytes},
          {"model_equal_to_bytes", points[a.model_equal.to].bucket_bytes},
          {"same_to_bytes", points[a.same_to].bucket_bytes},
          {"smallest_over_best", Finite(a.smallest_over_best)},
          {"no_overlap_over_best", Finite(a.no_overlap_over_best)},
          {"smallest_more_ms", Finite(a.smallest_more_ms)},
          {"largest_more_ms", Finite(a.largest_more_ms)},
          {"smallest_latency_ms", Finite(a.smallest_latency_ms)},
          {"best_latency_ms", Finite(a.best_latency_ms)},
          {"latency_more_ms", Finite(a.latency_more_ms)},
          {"tail_more_ms", Finite(a.tail_more_ms)},
          {"transfer_ms", Finite(a.transfer_ms)},
          {"added_ms", Finite(a.added_ms)},
          {"collectives_ms", Finite(a.collectives_ms)},
          {"bucket_us", Finite(a.bucket_us)},
          {"farthest_bytes", points[a.farthest].bucket_bytes},
          {"farthest_percent", Finite(a.farthest_percent)},
          {"best_percent", Finite(a.best_percent)},
          {"fit_error_percent", Finite(a.fit_error_percent)}};
}

json AsJson(const BucketSweep& sweep, int64_t parameters) {
  return {{"ranks", sweep.ranks},
          {"turns", sweep.turns},
          {"answer", AsJson(AnswerOf(sweep, parameters), sweep.points)},
          {"points", List(sweep.points)},
          {"no_overlap_ms", AsJson(sweep.no_overlap_ms)},
          {"no_overlap_over_best_percent",
           AsJson(sweep.no_overlap_over_best_percent)},
          {"model_no_overlap_ms", Finite(sweep.model_no_overlap_ms)},
          {"alone_ms", AsJson(sweep.alone_ms)},
          {"forward_ms", Finite(sweep.forward_ms)},
          {"backward_ms", Finite(sweep.backward_ms)},
          {"optimizer_ms", Finite(sweep.optimizer_ms)},
          {"link",
           {{"latency_us", Finite(sweep.link.latency_us)},
            {"bytes_per_us", Finite(sweep.link.bytes_per_us)}}},
          {"link_samples", List(sweep.samples)}};
}

json AsJson(const BucketFinding& buckets, int cores) {
  json sweeps = json::array();
  for (const BucketSweep& sweep : buckets.sweeps) {
    sweeps.push_back(AsJson(sweep, buckets.model.parameters));
  }
  return {{"model", AsJson(buckets.model)},
          {"zero", buckets.zero},
          {"recompute", buckets.recompute},
          {"shown_sweep", SweepToShow(buckets, cores)},
          {"sweeps", sweeps}};
}

json AsJson(const RecomputeCost& cost, const RecomputeAnswer& answer) {
  return {{"policy", cost.policy},
          {"step_ms", AsJson(cost.step_ms)},
          {"extra_percent", AsJson(cost.extra_percent)},
          {"model_extra_percent", Finite(cost.model_extra_percent)},
          {"saved_bytes", cost.saved_bytes},
          {"formula_bytes", cost.formula_bytes},
          {"difference_bytes", cost.saved_bytes - cost.formula_bytes},
          {"peak_bytes", cost.peak_bytes},
          {"saves_percent", Finite(answer.saves_percent)},
          {"peak_saves_percent", Finite(answer.peak_saves_percent)},
          {"beyond_model_points", Finite(answer.beyond_model_points)},
          {"forward_share_percent", Finite(answer.forward_share_percent)}};
}

json AsJson(const RecomputeFinding& recompute) {
  const std::vector<RecomputeAnswer> answers = AnswersOf(recompute);
  json costs = json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    costs.push_back(AsJson(recompute.costs[i], answers[i]));
  }
  return {{"model", AsJson(recompute.model)},
          {"turns", recompute.turns},
          {"forward_percent", kForwardPercent},
          {"costs", costs}};
}

}  // namespace

json AsJson(const Findings& findings) {
  json report = {{"conditions", AsJson(findings.conditions)},
                 {"interrupted", findings.is_interrupted}};
  if (!findings.memory.cases.empty()) {
    report["memory"] = AsJson(findings.memory);
  }
  if (!findings.buckets.sweeps.empty()) {
    report["buckets"] = AsJson(findings.buckets, findings.conditions.cores);
  }
  if (!findings.recompute.costs.empty()) {
    report["recompute"] = AsJson(findings.recompute);
  }
  return report;
}

std::string AsJsonText(const json& report) {
  // A path in the command need not be UTF-8.
  return report.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace trainsys
