#include "trainsys/checks/trajectory.h"

#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : parameters) gradients.push_back(p.grad());
  return Snapshot(gradients);
}

}  // namespace

Trajectory TrainStepwise(SmallModel& model, Optimizer& optimizer,
                         const Samples& samples, int ranks, int64_t steps) {
  const std::vector<at::Tensor> parameters = model.parameters();
  Trajectory trajectory;
  trajectory.start = Snapshot(parameters);
  for (int64_t s = 0; s < steps; ++s) {
    Trajectory::Step step;
    TrainInMicroSteps(
        parameters, optimizer, /*steps=*/1, ranks, [&](int64_t, int rank) {
          const Samples part = samples.Part(rank, ranks);
          step.own.push_back(
              torch::autograd::grad({LossOf(model, part)}, parameters));
          return LossOf(model, part);
        });
    step.mean = GradientsOf(parameters);
    step.after = Snapshot(parameters);
    trajectory.steps.push_back(std::move(step));
  }
  return trajectory;
}

}  // namespace trainsys
