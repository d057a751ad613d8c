// The models and data of the checks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace trainsys {

// Letters: B samples, F features, C classes.
class SmallModel : public torch::nn::Module {
 public:
  // Shape: [B, F] -> [B, C]
  virtual at::Tensor Forward(const at::Tensor& x) = 0;
};

// Runs one residual block: returns fn(x), by whatever means.
using BlockRunner = std::function<at::Tensor(
    const std::function<at::Tensor(const at::Tensor&)>& fn,
    const at::Tensor& x)>;

BlockRunner Plain();         // fn(x)
BlockRunner Checkpointed();  // Checkpoint(fn, x)

// 32-128-128-128-8 with GELU. Equal seeds give equal parameters.
std::shared_ptr<SmallModel> MakeMlp(uint64_t seed);

// 32-61-9 with GELU: 2571 elements, which neither 2 nor 4 ranks divide.
std::shared_ptr<SmallModel> MakeOddMlp(uint64_t seed);

// Linear(32,128), three residual blocks LayerNorm(128)-Linear(128,256)-GELU-
// Linear(256,128), each through `run_block`, Linear(128,8).
std::shared_ptr<SmallModel> MakeResidualModel(uint64_t seed,
                                              BlockRunner run_block);

inline constexpr int kWideBlocks = 4;

// As many residual blocks Linear(256,1024)-GELU-Linear(1024,256), each through
// `run_block`; with `dropout`, not 0, before the second Linear.
// Shape: [B, 256] -> [B, 256]
std::shared_ptr<SmallModel> MakeWideBlocks(uint64_t seed, BlockRunner run_block,
                                           double dropout = 0);

struct Samples {
  at::Tensor x;  // [B, F]
  at::Tensor y;  // [B] int64 in [0, C)

  // Rank `rank`'s part of `ranks` equal ones.
  Samples Part(int rank, int ranks) const;
  // In an accelerator's memory, or where they are.
  Samples On(int device) const;
};

void MoveTo(int device, SmallModel& model);

// 64 samples of 32 features in 8 classes.
Samples MakeSamples(uint64_t seed);

// Mean cross-entropy.
at::Tensor LossOf(SmallModel& model, const Samples& samples);

}  // namespace trainsys
