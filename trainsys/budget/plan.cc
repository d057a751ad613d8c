#include "trainsys/budget/plan.h"

#include <algorithm>

#include "collectives/errors.h"
#include "trainsys/budget/recompute_plan.h"

namespace trainsys {
namespace {

PlannedActivations ActivationsOf(const PlanRequest& request) {
  const ActivationOptions options = {
      request.rows, request.positions,
      BytesOf(request.states.precision, request.states.optimizer).parameter,
      request.attention};
  return ActivationsOf(request.shape, options,
                       PlanOfPolicy(request.recompute, request.shape.layers));
}

}  // namespace

MemoryPlan PlanMemory(const PlanRequest& request) {
  if (request.device_bytes < 1) {
    throw collectives::InvalidArgument(
        "a device without memory, expected a positive number of bytes");
  }
  MemoryPlan plan;
  plan.request = request;
  PlanRequest& settled = plan.request;
  if (settled.positions == 0) settled.positions = settled.shape.context;
  plan.activations = ActivationsOf(settled);
  const auto tensors = ElemsOf(ParameterTensors(settled.shape));
  for (int64_t elems : tensors) plan.parameters += elems;
  settled.states.rank = 0;
  settled.states.rank = LargestRank(tensors, settled.states);
  plan.states = ModelStatesOf(tensors, settled.states);
  plan.traffic = StepTrafficOf(tensors, settled.states);
  return plan;
}

// Every term of the activations is proportional to the rows.
int64_t LargestBatch(const MemoryPlan& plan) {
  const int64_t of_one = plan.activations.Peak() / plan.request.rows;
  const int64_t left = plan.request.device_bytes - plan.states.Total();
  return std::max<int64_t>(0, left / of_one);
}

std::vector<PlanLine> PlanLines(const MemoryPlan& plan) {
  const PlannedActivations& activations = plan.activations;
  const bool is_head_larger = activations.HeadOrBlock() == activations.head;
  return {{"parameters", plan.states.parameters.used},
          {"gradients", plan.states.gradients.used},
          {"optimizer state", plan.states.optimizer.used},
          {"padding", plan.states.Padding()},
          {"communication buffers", plan.states.communication},
          {"activations of the blocks", activations.blocks},
          {"activations of the embedding", activations.embedding},
          {is_head_larger ? "logits and loss" : "a block that runs again",
           activations.HeadOrBlock()}};
}

}  // namespace trainsys
