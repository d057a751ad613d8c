#include "trainsys/checks/small_models.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <string>
#include <utility>
#include <vector>

#include "collectives/buffer.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

using torch::nn::Dropout;
using torch::nn::GELU;
using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;
using torch::nn::Sequential;

class Mlp final : public SmallModel {
 public:
  explicit Mlp(Sequential layers) {
    layers_ = register_module("layers", std::move(layers));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    return layers_->forward(x);
  }

 private:
  Sequential layers_{nullptr};
};

// x + block(x) for each of `blocks`.
class Residual final : public SmallModel {
 public:
  Residual(BlockRunner run_block, std::vector<Sequential> blocks,
           Sequential first = nullptr, Sequential last = nullptr)
      : run_block_(std::move(run_block)),
        first_(std::move(first)),
        blocks_(std::move(blocks)),
        last_(std::move(last)) {
    if (first_) register_module("first", first_);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      register_module("block" + std::to_string(i), blocks_[i]);
    }
    if (last_) register_module("last", last_);
  }

  at::Tensor Forward(const at::Tensor& x) override {
    at::Tensor h = first_ ? first_->forward(x) : x;
    for (Sequential& block : blocks_) {
      h = run_block_(
          [block](const at::Tensor& t) mutable {
            return t + block->forward(t);
          },
          h);
    }
    return last_ ? last_->forward(h) : h;
  }

 private:
  BlockRunner run_block_;
  Sequential first_;
  std::vector<Sequential> blocks_;
  Sequential last_;
};

RankGeneratorScope SeededWith(uint64_t seed) {
  return RankGeneratorScope(MakeRankGenerator(seed, 0, 0));
}

at::Device DeviceNumbered(int device) {
  return {at::kCUDA, static_cast<at::DeviceIndex>(device)};
}

}  // namespace

BlockRunner Plain() {
  return [](const auto& fn, const at::Tensor& x) { return fn(x); };
}

BlockRunner Checkpointed() {
  return [](const auto& fn, const at::Tensor& x) { return Checkpoint(fn, x); };
}

std::shared_ptr<SmallModel> MakeMlp(uint64_t seed) {
  const RankGeneratorScope scope = SeededWith(seed);
  return std::make_shared<Mlp>(
      Sequential(Linear(32, 128), GELU(), Linear(128, 128), GELU(),
                 Linear(128, 128), GELU(), Linear(128, 8)));
}

std::shared_ptr<SmallModel> MakeOddMlp(uint64_t seed) {
  const RankGeneratorScope scope = SeededWith(seed);
  return std::make_shared<Mlp>(
      Sequential(Linear(32, 61), GELU(), Linear(61, 9)));
}

std::shared_ptr<SmallModel> MakeResidualModel(uint64_t seed,
                                              BlockRunner run_block) {
  const RankGeneratorScope scope = SeededWith(seed);
  std::vector<Sequential> blocks;
  Sequential first(Linear(32, 128));
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(Sequential(LayerNorm(LayerNormOptions({128})),
                                Linear(128, 256), GELU(), Linear(256, 128)));
  }
  return std::make_shared<Residual>(std::move(run_block), std::move(blocks),
                                    std::move(first),
                                    Sequential(Linear(128, 8)));
}

std::shared_ptr<SmallModel> MakeWideBlocks(uint64_t seed, BlockRunner run_block,
                                           double dropout) {
  const RankGeneratorScope scope = SeededWith(seed);
  std::vector<Sequential> blocks;
  for (int i = 0; i < kWideBlocks; ++i) {
    Sequential block(Linear(256, 1024), GELU());
    if (dropout > 0) block->push_back(Dropout(dropout));
    block->push_back(Linear(1024, 256));
    blocks.push_back(std::move(block));
  }
  return std::make_shared<Residual>(std::move(run_block), std::move(blocks));
}

Samples Samples::Part(int rank, int ranks) const {
  const int64_t each = x.size(0) / ranks;
  return {x.narrow(0, rank * each, each), y.narrow(0, rank * each, each)};
}

Samples Samples::On(int device) const {
  if (device == collectives::kHostMemory) return *this;
  return {x.to(DeviceNumbered(device)), y.to(DeviceNumbered(device))};
}

void MoveTo(int device, SmallModel& model) {
  if (device != collectives::kHostMemory) model.to(DeviceNumbered(device));
}

Samples MakeSamples(uint64_t seed) {
  at::Generator generator = MakeRankGenerator(seed, 0, 0);
  return {at::randn({64, 32}, generator),
          at::randint(8, {64}, generator, at::kLong)};
}

at::Tensor LossOf(SmallModel& model, const Samples& samples) {
  return at::cross_entropy_loss(model.Forward(samples.x), samples.y);
}

}  // namespace trainsys
