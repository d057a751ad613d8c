#include "trainsys/budget/step_budget.h"

#include <vector>

namespace trainsys {
namespace {

using enum MemoryCategory;

constexpr int64_t kTokenBytes = 8;  // int64

// The rotary angles, complex, and the causal mask, each in f64 and in f32:
// Positions keeps both.
int64_t PositionTableBytes(const TransformerConfig& config) {
  const int64_t turns = config.context * config.dim / 2;
  const int64_t mask = config.context * config.context;
  return turns * (16 + 8) + mask * (8 + 4);
}

MemorySplit Constructed(const TransformerJobShape& shape) {
  std::vector<int64_t> tensors;
  for (const auto& p : ParameterSizes(shape.model)) {
    tensors.push_back(p.elements);
  }
  const ModelStates states = ModelStatesOf(tensors, shape.states);
  MemorySplit split;
  split[kParameter] = states.parameters.used;
  split[kGradient] = states.gradients.used;
  split[kOptimizerState] = states.optimizer.used;
  split[kPadding] = states.Padding();
  split[kCommunication] = states.communication;
  split[kOther] = PositionTableBytes(shape.model);
  return split;
}

}  // namespace

StepMemory StepBudgetOf(const TransformerJobShape& shape) {
  const int64_t element_bytes =
      BytesOf(shape.states.precision, shape.states.optimizer).parameter;
  StepMemory memory;
  memory.at.fill(Constructed(shape));
  const ForwardShape forward_shape{shape.rows, shape.positions, element_bytes,
                                   shape.libtorch};
  const SavedBytes saved =
      SavedAfterForward(shape.model, forward_shape, shape.plan);
  MemorySplit& forward = memory[StepPoint::kAfterForward];
  forward[kActivation] = saved.total();
  forward[kInput] = 2 * shape.rows * shape.positions * kTokenBytes;
  // The loss, which the step reads at its end.
  for (StepPoint point : {StepPoint::kAfterForward, StepPoint::kAfterBackward,
                          StepPoint::kAfterOptimizer}) {
    memory[point][kTemporary] = element_bytes;
  }
  return memory;
}

}  // namespace trainsys
