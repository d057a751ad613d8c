// One layer used in several checkpointed segments: its gradients are one event.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using ::testing::Each;

constexpr int kRanks = 2;

// Equal values for equal seeds.
torch::nn::Linear MakeLinear(uint64_t seed) {
  torch::nn::Linear linear(8, 8);
  const at::NoGradGuard no_grad;
  linear->weight.copy_(Random(seed, {8, 8}));
  linear->bias.copy_(Random(seed + 1, {8}));
  return linear;
}

at::Tensor LossOf(torch::nn::LinearImpl& linear, const at::Tensor& x,
                  bool in_segments) {
  const auto layer = [&](const at::Tensor& t) {
    return linear.forward(t).tanh();
  };
  const at::Tensor y =
      in_segments ? Checkpoint(layer, Checkpoint(layer, x)) : layer(layer(x));
  return y.square().mean();
}

TEST(SharedLayerTest, InTwoSegmentsItsHooksRunOnceAndItsBucketsGoOnce) {
  torch::nn::Linear one = MakeLinear(0);
  const Tensors expected =
      MicroStepGradients(one->parameters(), kRanks, [&](int rank) {
        return LossOf(*one, InputOf(rank), /*in_segments=*/false);
      });
  const auto recorders =
      RunRanksHere({.ranks = kRanks}, [&](Communicator& comm) {
        torch::nn::Linear linear = MakeLinear(comm.rank());
        BucketedDDP ddp(*linear, comm, {.bucket_bytes = 1});
        std::vector<int> calls(2, 0);
        std::vector<GradientHook> hooks;
        for (size_t p = 0; p < calls.size(); ++p) {
          hooks.emplace_back(ddp.parameters()[p], [&calls, p] { ++calls[p]; });
        }
        ddp.BeginForward();
        LossOf(*linear, InputOf(comm.rank()), /*in_segments=*/true).backward();
        EXPECT_THAT(calls, Each(1));
        ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(ddp.parameters()), expected));
      });
  for (const auto& recorder : recorders) {
    EXPECT_EQ(
        BucketRecords(recorder, 0, std::numeric_limits<int64_t>::max()).size(),
        2);
  }
}

}  // namespace
}  // namespace trainsys
