#include "trainsys/zero/flat_optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/errors.h"
#include "trainsys/proof/references.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using Tensors = std::vector<at::Tensor>;

constexpr AdamWOptions kOptions{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

at::Tensor Random(uint64_t seed, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, MakeRankGenerator(seed, 0, 0)).to(dtype);
}

Tensors MakeParameters(at::ScalarType dtype = at::kFloat) {
  Tensors parameters{Random(1, {7, 11}, dtype), Random(2, {}, dtype),
                     Random(3, {0, 8}, dtype), Random(4, {100}, dtype)};
  for (at::Tensor& p : parameters) p.set_requires_grad(true);
  return parameters;
}

void SetGradients(const Tensors& parameters, uint64_t seed) {
  for (at::Tensor p : parameters) {
    p.mutable_grad() = Random(seed++, p.sizes(), p.scalar_type());
  }
}

double DifferenceToLibtorch(at::ScalarType dtype) {
  const Tensors ours = MakeParameters(dtype);
  const Tensors theirs = MakeParameters(dtype);
  FlatOptimizer our_optimizer(ours, kOptions);
  const auto their_optimizer = LibtorchAdamW(theirs, kOptions);
  for (uint64_t step = 0; step < 20; ++step) {
    SetGradients(ours, 100 * step);
    SetGradients(theirs, 100 * step);
    our_optimizer.Step();
    their_optimizer->Step();
  }
  return MaxDifference(ours, theirs);
}

TEST(FlatOptimizerTest, StaysWithLibtorchOverTwentySteps) {
  EXPECT_LE(DifferenceToLibtorch(at::kFloat), 1e-5);
  EXPECT_LE(DifferenceToLibtorch(at::kDouble), 1e-13);
}

TEST(ShardOptimizerTest, ItChangesItsOwnElementsOnlyAndToTheSameBits) {
  constexpr int kShards = 3;
  const Tensors whole = MakeParameters();
  FlatOptimizer all(whole, kOptions);
  SetGradients(whole, 100);
  all.Step();
  for (Partition partition :
       {Partition::kFlat, Partition::kByTensor, Partition::kBalanced}) {
    for (int owned = 0; owned < kShards; ++owned) {
      const Tensors parameters = MakeParameters();
      const ShardPlan plan =
          PlanShards(BytesOfEach(parameters), kShards, partition);
      ShardOptimizer shard(parameters, {{parameters, kOptions}}, plan, owned);
      Tensors expected = Snapshot(parameters);
      for (const ShardPiece& piece : plan.PiecesOf(owned)) {
        const auto part = [&piece](const at::Tensor& p) {
          return p.detach().view({-1}).narrow(0, piece.begin / 4,
                                              piece.bytes / 4);
        };
        part(expected[piece.tensor]).copy_(part(whole[piece.tensor]));
      }
      SetGradients(parameters, 100);
      shard.UpdateAll(GradientsInPlace(parameters), 1);
      EXPECT_TRUE(EqualBits(parameters, expected)) << "shard " << owned;
    }
  }
}

TEST(FlatOptimizerTest, AParameterWithoutAGradientIsNotTouched) {
  const Tensors parameters = MakeParameters();
  const Tensors before = Snapshot(parameters);
  FlatOptimizer optimizer(parameters, kOptions);
  SetGradients(parameters, 100);
  at::Tensor first = parameters[0];
  first.mutable_grad().reset();
  optimizer.ZeroGrad();
  EXPECT_FALSE(first.grad().defined());
  SetGradients({parameters[3]}, 100);
  optimizer.Step();
  EXPECT_TRUE(EqualBits({first}, {before[0]}));
  EXPECT_FALSE(EqualBits({parameters[3]}, {before[3]}));
}

// As in torch::optim, where the bias correction is each parameter's own.
TEST(FlatOptimizerTest, AParameterWithoutAGradientCountsNoStep) {
  const Tensors ours = MakeParameters(at::kDouble);
  const Tensors theirs = MakeParameters(at::kDouble);
  FlatOptimizer our_optimizer(ours, kOptions);
  const auto their_optimizer = LibtorchAdamW(theirs, kOptions);
  for (uint64_t step = 0; step < 6; ++step) {
    for (const Tensors& parameters : {ours, theirs}) {
      SetGradients(parameters, 100 * step);
      at::Tensor first = parameters[0];
      if (step % 3 == 0) first.mutable_grad().reset();
    }
    our_optimizer.Step();
    their_optimizer->Step();
  }
  EXPECT_LE(MaxDifference(ours, theirs), 1e-13);
}

TEST(FlatOptimizerTest, AGraphThatSavedAParameterNoticesTheUpdate) {
  const Tensors parameters = MakeParameters();
  FlatOptimizer optimizer(parameters, kOptions);
  const at::Tensor loss = parameters[0].square().sum();
  SetGradients(parameters, 100);
  optimizer.Step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(FlatOptimizerTest, ZeroGradKeepsTheGradientsMemory) {
  const Tensors parameters = MakeParameters();
  FlatOptimizer optimizer(parameters, kOptions);
  SetGradients(parameters, 100);
  const void* place = parameters[3].grad().data_ptr();
  optimizer.ZeroGrad();
  EXPECT_EQ(parameters[3].grad().data_ptr(), place);
  EXPECT_TRUE(EqualBits({parameters[3].grad()}, {at::zeros({100})}));
}

TEST(FlatOptimizerTest, AGradientWithStridesGivesTheSameBits) {
  const auto step = [](const at::Tensor& grad) {
    at::Tensor p = at::ones({3, 5}).set_requires_grad(true);
    FlatOptimizer optimizer({p}, kOptions);
    p.mutable_grad() = grad;
    optimizer.Step();
    return Snapshot({p});
  };
  const at::Tensor grad = Random(7, {5, 3}, at::kFloat).t();
  EXPECT_TRUE(EqualBits(step(grad), step(grad.contiguous())));
}

TEST(FlatOptimizerTest, AGradientOfAnotherTypeIsRefused) {
  at::Tensor p = at::ones({4}).set_requires_grad(true);
  FlatOptimizer optimizer({p}, kOptions);
  p.mutable_grad() = at::ones({4}, at::kDouble);
  EXPECT_THROW(optimizer.Step(), InvalidArgument);
}

TEST(FlatOptimizerTest, StateIsTwoMomentsOfThePaddedParameters) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const FlatOptimizer optimizer(MakeParameters(dtype), kOptions);
    // 77, 1, 0 and 100 elements, each on 64 bytes.
    EXPECT_EQ(optimizer.StateBytes(),
              2 * (dtype == at::kFloat ? 320 + 64 + 448 : 640 + 64 + 832));
  }
}

TEST(FlatOptimizerTest, BadOptionsAreRefused) {
  for (const AdamWOptions& options :
       {AdamWOptions{.lr = -1}, AdamWOptions{.beta1 = 1},
        AdamWOptions{.beta2 = -0.1}, AdamWOptions{.eps = -1}}) {
    EXPECT_THROW(FlatOptimizer(MakeParameters(), options), InvalidArgument);
  }
}

}  // namespace
}  // namespace trainsys
