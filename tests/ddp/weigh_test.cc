// A mean over samples instead of a mean over ranks.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using torch::nn::Module;

// Shape: [4]; small integers, so that everything below is exact.
at::Tensor AddWeights(Module& module) {
  return module.register_parameter("w", at::arange(1, 5, at::kFloat));
}

// Shape: [samples, 4], other ones for each `first`.
at::Tensor Samples(int first, int samples) {
  const at::Tensor x = at::arange(4 * first, 4 * (first + samples), at::kFloat);
  return x.remainder(7).view({samples, 4});
}

at::Tensor MeanLoss(const at::Tensor& w, const at::Tensor& x) {
  return at::matmul(x, w).square().mean();
}

// The gradient of one rank with all samples at once.
at::Tensor GradientOfAll(const at::Tensor& x) {
  Module module;
  const at::Tensor w = AddWeights(module);
  MeanLoss(w, x).backward();
  return w.grad();
}

// Runs the samples [first, first + samples).
void Backward(BucketedDDP& ddp, int first, int samples) {
  ddp.BeginForward();
  const at::Tensor loss =
      MeanLoss(ddp.parameters()[0], Samples(first, samples));
  ddp.Weigh(loss, samples).backward();
}

TEST(WeighTest, ThreeSamplesAndOneGiveTheBitsOfOneRankWithFour) {
  const at::Tensor expected = GradientOfAll(Samples(0, 4));
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      comm.rank() == 0 ? Backward(ddp, 0, 3) : Backward(ddp, 3, 1);
      ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits({w.grad()}, {expected}));
    }
    // Weights are of one step only.
    ddp.ZeroGrad();
    Backward(ddp, comm.rank(), 1);
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {GradientOfAll(Samples(0, 2))}));
  });
}

TEST(WeighTest, MicroStepsOfUnequalSizesCountAsTheirSamples) {
  const at::Tensor expected = GradientOfAll(Samples(0, 16));
  const std::vector<std::vector<int>> sizes{{1, 2, 3}, {3, 2, 1}, {1, 1, 2}};
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    int first = 6 * comm.rank();
    for (size_t i = 0; i < 3; ++i) {
      std::optional<NoSync> quiet;
      if (i < 2) quiet.emplace(ddp);
      const int samples = sizes[static_cast<size_t>(comm.rank())][i];
      Backward(ddp, first, samples);
      first += samples;
    }
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {expected}));
  });
}

TEST(WeighTest, InexactNumbersInF64AreThoseOfAllSamples) {
  const std::vector<at::ScalarType> dtypes(3, at::kDouble);
  const std::vector<int64_t> samples{3, 1, 7, 2};
  Tensors inputs;
  for (size_t r = 0; r < samples.size(); ++r) {
    inputs.push_back(Random(50 + r, {samples[r], 8}, at::kDouble));
  }
  Module reference;
  const Tensors one = AddLayers(reference, 0, dtypes);
  LayersLoss(one, at::cat(inputs)).backward();
  RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0, dtypes);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1000, .weigh_losses = true});
    const auto own = static_cast<size_t>(comm.rank());
    ddp.BeginForward();
    ddp.Weigh(LayersLoss(parameters, inputs[own]), samples[own]).backward();
    ddp.FinishGradientSync();
    EXPECT_LT(MaxDifference(GradientsOf(parameters), GradientsOf(one)), 1e-12);
  });
}

TEST(WeighTest, ARankOfWeightZeroCountsForNothing) {
  const at::Tensor expected = GradientOfAll(Samples(0, 2));
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    ddp.BeginForward();
    const at::Tensor loss = MeanLoss(w, Samples(2 * comm.rank(), 2));
    ddp.Weigh(loss, comm.rank() == 0 ? 2 : 0).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {expected}));
  });
}

TEST(WeighTest, TheResultIsTheLossTimesTheWeight) {
  RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    EXPECT_EQ(ddp.Weigh(w.sum(), 2.5).item<float>(), 25);
  });
}

TEST(WeighTest, WeightsBelowZeroOrNotFiniteAreRefused) {
  RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    using Limits = std::numeric_limits<double>;
    for (double weight : {-1.0, -1e-9, Limits::quiet_NaN(), Limits::infinity(),
                          -Limits::infinity()}) {
      EXPECT_THAT(ErrorOf<InvalidArgument>([&] { ddp.Weigh(w.sum(), weight); }),
                  HasSubstr("finite number, 0 or above"));
    }
    // What was refused does not count.
    ddp.BeginForward();
    ddp.Weigh(w.sum(), 2).backward();
    ddp.FinishGradientSync();
    EXPECT_EQ(w.grad()[0].item<float>(), 1);
  });
}

TEST(WeighTest, WithoutTheOptionWeighIsRefused) {
  RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm);
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { ddp.Weigh(w.sum(), 1); }),
                HasSubstr("expected weigh_losses"));
  });
}

// An evaluation between training steps must not count.
TEST(WeighTest, ALossWithoutAGraphCountsForNothing) {
  RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    ddp.Weigh(w.detach().sum(), 5);
    ddp.BeginForward();
    ddp.Weigh(w.sum(), 2).backward();
    ddp.FinishGradientSync();
    EXPECT_EQ(w.grad()[0].item<float>(), 1);
  });
}

// Runs a step in which rank r weighs its loss by weights[r], if at all,
// and the first `num_batches` ranks have a batch; then one in which all do,
// which must be right. Result: what the ranks threw.
std::vector<std::string> ErrorsOf(
    const std::vector<std::optional<double>>& weights, int num_batches) {
  std::vector<std::string> texts(weights.size());
  const int ranks = static_cast<int>(weights.size());
  RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    const at::Tensor b = module.register_parameter("b", at::zeros({3}));
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1, .weigh_losses = true});
    const auto own = static_cast<size_t>(comm.rank());
    const bool has_batch = comm.rank() < num_batches;
    texts[own] = ErrorOf<Error>([&] {
      ddp.Join(has_batch);
      if (has_batch) {
        ddp.BeginForward();
        at::Tensor loss = MeanLoss(w, Samples(comm.rank(), 1)) + b.sum();
        if (weights[own]) loss = ddp.Weigh(loss, *weights[own]);
        loss.backward();
      }
      ddp.FinishGradientSync();
    });
    EXPECT_FALSE(w.grad().defined()) << "half reduced gradients are dropped";
    EXPECT_FALSE(b.grad().defined());
    ddp.BeginForward();
    ddp.Weigh(MeanLoss(w, Samples(comm.rank(), 1)) + b.sum(), 1).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {GradientOfAll(Samples(0, ranks))}));
  });
  return texts;
}

TEST(WeighTest, WeightsThatAddUpToNothingAreAnErrorOnEveryRank) {
  for (int num_batches : {4, 3}) {
    EXPECT_THAT(ErrorsOf({0, 0, 0, 0}, num_batches),
                Each(AllOf(HasSubstr("step 0"), HasSubstr("add up to 0"))));
  }
}

TEST(WeighTest, RanksThatDidNotWeighAreAnErrorOnEveryRank) {
  for (int num_batches : {4, 3}) {
    EXPECT_THAT(
        ErrorsOf({std::nullopt, 2, std::nullopt, 3}, num_batches),
        Each(AllOf(HasSubstr("step 0"), HasSubstr("ranks 0 2 did not weigh"))));
  }
}

TEST(WeighTest, WhatCountsIsBackwardAndNotWeigh) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    const at::Tensor w = AddWeights(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    const auto loss = [&](int first, int samples) {
      return ddp.Weigh(MeanLoss(w, Samples(first, samples)), samples);
    };
    {
      const NoSync quiet(ddp);
      ddp.BeginForward();
      loss(5, 3).backward();
      ddp.ZeroGrad();  // dropped, its weight too
      ddp.BeginForward();
      loss(6, 2);  // never run
      const at::Tensor twice = loss(comm.rank(), 1);
      twice.backward({}, /*retain_graph=*/true);
      twice.backward();
    }
    ddp.BeginForward();
    loss(comm.rank(), 1).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {GradientOfAll(Samples(0, 2))}));
  });
}

}  // namespace
}  // namespace trainsys
