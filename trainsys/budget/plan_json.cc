#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

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

// What of the parameters lies in a rank's shard, without padding.
struct Share {
  int64_t bytes = 0;
  size_t pieces = 0;
};

std::vector<Share> SharesOf(const ShardPlan& plan) {
  std::vector<Share> shares;
  for (size_t rank = 0; rank < plan.shards.size(); ++rank) {
    Share& share = shares.emplace_back();
    for (const ShardPiece& piece : plan.PiecesOf(static_cast<int>(rank))) {
      share.bytes += piece.bytes;
      ++share.pieces;
    }
  }
  return shares;
}

// A path need not be UTF-8.
std::string Text(const json& out) {
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string AsJson(const PlanRequest& request, const ShardPlan& plan) {
  const std::vector<Share> shares = SharesOf(plan);
  int64_t all = 0, most = 0;
  for (const Share& share : shares) {
    all += share.bytes;
    most = std::max(most, share.bytes);
  }
  const double even =
      static_cast<double>(all) / static_cast<double>(shares.size());
  json out{{"options",
            {{"model", request.shape.name},
             {"ranks", request.states.ranks},
             {"partition", NameOf(request.states.partition)},
             {"precision", NameOf(request.states.precision)}}},
           {"tensors", plan.tensor_bytes.size()},
           {"bytes", all},
           {"padding_bytes", plan.bytes - all},
           {"imbalance", static_cast<double>(most) / even},
           {"shards", json::array()}};
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const auto bytes = static_cast<double>(shares[rank].bytes);
    out["shards"].push_back(
        {{"rank", rank},
         {"bytes", shares[rank].bytes},
         {"percent", 100 * bytes / static_cast<double>(all)},
         {"pieces", shares[rank].pieces}});
  }
  return Text(out);
}

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
  return Text(out);
}

}  // namespace trainsys
