#include "trainsys/zero/flat_optimizer.h"

#include <cmath>
#include <utility>

#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

ShardOptimizer MakeWhole(std::vector<ParameterGroup> groups) {
  std::vector<at::Tensor> parameters = ParametersOf(groups);
  ShardPlan plan = PlanShards(BytesOfEach(parameters), 1, Partition::kFlat);
  return {std::move(parameters), std::move(groups), std::move(plan), 0};
}

}  // namespace

FlatOptimizer::FlatOptimizer(std::vector<at::Tensor> parameters,
                             const OptimizerOptions& options)
    : FlatOptimizer(
          std::vector<ParameterGroup>{{std::move(parameters), options}}) {}

FlatOptimizer::FlatOptimizer(std::vector<ParameterGroup> groups)
    : local_(MakeWhole(std::move(groups))),
      gradient_(GradientsInPlace(local_.parameters())) {}

void FlatOptimizer::ZeroGrad() { ZeroGradients(local_.parameters()); }

void FlatOptimizer::StepScaled(double gradient_scale) {
  local_.TakeBack();
  local_.UpdateAll(gradient_, gradient_scale);
}

double FlatOptimizer::GradNorm() {
  ExactSum sum;
  local_.AddSquares(gradient_, sum);
  return std::sqrt(sum.Round());
}

}  // namespace trainsys
