#include <nlohmann/json.hpp>

#include "trainsys/budget/plan_report.h"

namespace trainsys {
namespace {

using nlohmann::json;

json Options(const MemoryPlan& plan) {
  const PlanRequest& r = plan.request;
  return {{"model", r.shape.name},
          {"ranks", r.states.ranks},
          {"zero", r.states.zero_stage},
          {"partition", NameOf(r.states.partition)},
          {"precision", NameOf(r.states.precision)},
          {"optimizer", NameOf(r.states.optimizer)},
          {"bucket_bytes", r.states.bucket_bytes},
          {"recompute", r.recompute},
          {"attention", NameOf(r.attention)},
          {"batch", r.rows},
          {"seq", r.positions}};
}

json Memory(const MemoryPlan& plan) {
  const ModelStates& states = plan.states;
  return {{"rank", plan.request.states.rank},
          {"parameters", states.parameters.used},
          {"gradients", states.gradients.used},
          {"optimizer_state", states.optimizer.used},
          {"padding", states.Padding()},
          {"communication_buffers", states.communication},
          {"block_activations", plan.activations.blocks},
          {"embedding_activations", plan.activations.embedding},
          {"logits_and_loss", plan.activations.head},
          {"recomputed_block", plan.activations.recomputed_block},
          {"logits_or_recomputed_block", plan.activations.HeadOrBlock()},
          {"total", plan.Total()},
          {"device", plan.request.device_bytes}};
}

json Sent(const StepTraffic& traffic) {
  return {
      {"gradients", traffic.gradients},
      {"parameters", traffic.parameters},
      {"total", traffic.Total()},
      {"gradients_if_by_reduce_scatter", traffic.gradients_by_reduce_scatter},
      {"optimizer_state_in_place_of_parameters",
       traffic.optimizer_state_instead}};
}

}  // namespace

std::string AsJson(const MemoryPlan& plan) {
  json out;
  out["fits"] = plan.Fits();
  out["parameters"] = plan.parameters;
  out["largest_batch_that_fits"] = LargestBatch(plan);
  out["options"] = Options(plan);
  out["memory_bytes_per_rank"] = Memory(plan);
  out["sent_bytes_per_rank_and_step_by_rule"] = Sent(plan.traffic);
  out["remedies"] = json::array();
  for (const Remedy& remedy : Remedies(plan)) {
    out["remedies"].push_back({{"change", remedy.change},
                               {"total_bytes", remedy.total_bytes},
                               {"fits", remedy.fits}});
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace trainsys
