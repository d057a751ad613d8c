#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "trainsys/report/job_report.h"

namespace trainsys {
namespace {

using nlohmann::json;

json AsJson(const MemorySplit& split) {
  json out;
  for (MemoryCategory c : kMemoryCategories)
    out[std::string(Name(c))] = split[c];
  return out;
}

json AsJson(const StepMemory& memory) {
  json out;
  for (StepPoint point : kStepPoints) {
    out[std::string(Name(point))] = AsJson(memory[point]);
  }
  return out;
}

json AsJson(const MemoryReport& memory) {
  return {{"budget_bytes", memory.budget ? AsJson(*memory.budget) : json()},
          {"ledger_bytes", AsJson(memory.ledger)},
          {"as_budgeted", memory.budget ? json(memory.IsAsBudgeted()) : json()},
          {"peak_bytes", memory.peak.bytes},
          {"peak_split_bytes", AsJson(memory.peak.split)},
          {"saved_raw_bytes", memory.saved_raw_bytes},
          {"saved_distinct_bytes", memory.saved_distinct_bytes}};
}

json AsJson(const RankReport& rank) {
  return {{"parameter_bytes", rank.bytes.parameter_bytes},
          {"gradient_bytes", rank.bytes.gradient_bytes},
          {"optimizer_state_bytes", rank.bytes.state_bytes},
          {"parameter_hash", fmt::format("{:016x}", rank.bytes.parameter_hash)},
          {"bucket_reductions", rank.num_buckets},
          {"bucket_reductions_posted_in_backward", rank.num_posted_in_backward},
          {"sent_bytes_per_step_by_rule", rank.sent_bytes_per_step},
          {"waited_for_peers_ms_per_step", rank.waited_for_peers_ms},
          {"waited_for_data_ms_per_step", rank.waited_for_data_ms},
          {"clock_offset_ns", rank.clock.offset_ns},
          {"clock_error_ns", rank.clock.error_ns},
          {"memory", AsJson(rank.memory)}};
}

json AsJson(const Proof& proof) {
  return {{"steps", proof.steps},
          {"equal_bits", proof.has_equal_bits},
          {"f32_difference", proof.f32_difference},
          {"f64_difference", proof.f64_difference},
          {"f64_tolerance", kF64Tolerance},
          {"passed", proof.HasPassed()}};
}

}  // namespace

std::string AsJson(const JobOptions& options, const JobReport& report) {
  json out;
  out["options"] = {
      {"ranks", options.ranks},
      {"steps", options.steps},
      {"batch", options.batch},
      {"ddp", options.ddp},
      {"bucket_kb", options.bucket_kb},
      {"recompute", options.recompute},
      {"activation_budget_bytes", options.activation_budget_bytes},
      {"zero", options.zero},
      {"partition", NameOf(options.partition)},
      {"reduce_scatter", options.reduce_scatter || options.zero == 2},
      {"overlap_step", options.overlap_step},
      {"lr", options.lr},
      {"seed", options.seed},
      {"data", report.data}};
  out["backend"] = report.backend;
  out["rank_order"] = report.has_rank_order;
  out["blas"] = report.blas;
  out["parameters"] = report.parameters;
  out["tokens_per_step"] = report.tokens_per_step;
  out["recorded_steps"] = report.recorded_steps;
  out["step_ms_median"] = report.step_ms_median;
  out["step_ms_p95"] = report.step_ms_p95;
  out["tokens_per_s"] = report.tokens_per_s;
  out["losses"] = report.losses;
  out["parameter_hash"] = fmt::format("{:016x}", report.parameter_hash);
  out["in_sync"] = report.is_in_sync;
  out["interrupted"] = report.is_interrupted;
  out["passed"] = HasPassed(report);
  out["outside_ranks_peak_bytes"] = report.outside_peak_bytes;
  for (const RankReport& rank : report.ranks) {
    out["ranks"].push_back(AsJson(rank));
  }
  if (report.proof) out["proof"] = AsJson(*report.proof);
  // A path need not be UTF-8.
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace trainsys
