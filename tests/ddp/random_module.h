// Modules and training loops made from a seed.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ddp/layers.h"

namespace trainsys {

enum class BetweenSteps { kZeroGrad, kZeroInPlace, kKeep };

struct Layer {
  int64_t in = 0;
  int64_t out = 0;
  at::ScalarType dtype = at::kFloat;
  size_t tied_to = 0;  // the layer whose parameters it has; itself if none
  bool is_frozen[2] = {false, false};  // weight, bias
  bool is_never_used = false;
};

// What a seed stands for.
struct Scenario {
  std::vector<Layer> layers;
  bool skips_layers = false;  // ranks and micro-steps use different ones
  int ranks = 1;
  int micro_steps = 1;
  int64_t samples = 1;
  BetweenSteps between = BetweenSteps::kZeroGrad;
  int64_t bucket_bytes = 1;
  int64_t first_bucket_bytes = 1;
};

Scenario MakeScenario(uint64_t seed);
std::string Describe(const Scenario& scenario);

// Result: weight and bias of each layer, those of tied ones again. Other
// values for each `seed`.
Tensors AddRandomLayers(torch::nn::Module& module, const Scenario& scenario,
                        uint64_t seed);

struct MicroStep {
  int step = 0;
  int number = 0;
  int rank = 0;
};

// The loss of one rank in one micro-step, on samples of its own.
at::Tensor RandomLoss(const Scenario& scenario, const Tensors& parameters,
                      const MicroStep& at);

// Does a rank's loss depend on that parameter in any micro-step of the step?
bool UsesParameter(const Scenario& scenario, size_t parameter, int step,
                   int rank);

}  // namespace trainsys
