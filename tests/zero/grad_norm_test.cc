// The gradients' norm, and steps that depend on it: the same number on all
// ranks, whoever has which part.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/layers_rank.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/optim/clipped_step.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RankFunction;
using collectives::Record;
using collectives::RunRanksHere;
using torch::nn::Module;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of reference A.
double NormOfOneRank(int ranks) {
  Module module;
  const Tensors parameters = AddLayers(module, 0);
  const Tensors gradients = MicroStepGradients(
      parameters, ranks,
      [&](int rank) { return LayersLoss(parameters, InputOf(rank)); });
  FlatOptimizer optimizer(parameters, kAdamW);
  for (size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].mutable_grad() = gradients[p];
  }
  return optimizer.GradNorm();
}

// Reduced gradients of step 0, in one bucket or more.
void ReduceGradients(LayersRank& rank) {
  rank.optimizer->ZeroGrad();
  rank.Backward(0);
  rank.ddp.FinishGradientSync();
}

class GradNormTest : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, GradNormTest,
                         testing::ValuesIn(WaysOf(Stepping::kAfterBackward)),
                         [](const auto& info) { return Name(info.param); });

// Plain sums in some order would differ in their last bits.
TEST_P(GradNormTest, IsOneNumberForEveryBucketSizeAndEqualsOneRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    const double expected = NormOfOneRank(ranks);
    for (const int64_t bucket_bytes : {1, 1 << 10, 1 << 11, 1 << 20}) {
      OnRanks(ranks, [&](Communicator& comm) {
        LayersRank rank(comm, GetParam(), {.bucket_bytes = bucket_bytes});
        for (int again = 0; again < 2; ++again) {  // also planned anew
          ReduceGradients(rank);
          EXPECT_EQ(rank.optimizer->GradNorm(), expected)
              << bucket_bytes << " bytes a bucket";
        }
      });
    }
  }
}

// Sum of squares over ranks, neither a mean nor each rank's own.
TEST_P(GradNormTest, OfFourHundredOnesIsTwentyWhateverLiesElsewhere) {
  OnRanks(4, [](Communicator& comm) {
    Module module;
    const at::Tensor w = module.register_parameter("w", at::ones({399}));
    const at::Tensor b = module.register_parameter("b", at::ones({1}));
    BucketedDDP ddp(module, comm, WithWay({.bucket_bytes = 1}, GetParam()));
    ZeROOptimizer optimizer(ddp, comm, kAdamW);
    ddp.BeginForward();
    // Where one rank's part is another's rubbish, that is 1e30 and more.
    const double own = comm.rank() == 0 ? -1e30 : 1e30;
    const double slope = comm.rank() < 2 ? own : 2.0;
    ((w.sum() + b.sum()) * slope).backward();
    ddp.FinishGradientSync();
    EXPECT_EQ(optimizer.GradNorm(), 20);
  });
}

TEST_P(GradNormTest, CountsATiedParameterOnceAndAnUnusedOneNever) {
  OnRanks(3, [](Communicator& comm) {
    Module module;
    const at::Tensor w = module.register_parameter("w", at::ones({36}));
    module.register_parameter("tied", w);
    const at::Tensor unused = module.register_parameter("u", at::ones({50}));
    BucketedDDP ddp(module, comm,
                    WithWay({.bucket_bytes = 1, .find_unused_parameters = true},
                            GetParam()));
    ZeROOptimizer optimizer(ddp, comm, AdamWOptions{.weight_decay = 0.5});
    ddp.BeginForward();
    (w.sum() * (1.0 + comm.rank())).backward();
    ddp.FinishGradientSync();
    EXPECT_EQ(optimizer.GradNorm(), 12);  // 6 * mean of 1, 2 and 3
    optimizer.Step();
    EXPECT_EQ(unused[49].item<float>(), 1);  // no decay either
    EXPECT_NE(w[35].item<float>(), 1);
  });
}

// From the records: one small all-reduce, whatever the parameters.
TEST_P(GradNormTest, SendsASumOfFixedSize) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    ReduceGradients(rank);
    const size_t before = comm.recorder().Records().size();
    rank.optimizer->GradNorm();
    const std::vector<Record> records = comm.recorder().Records();
    ASSERT_EQ(records.size(), before + 1);
    EXPECT_EQ(records.back().label, "squared norm");
    EXPECT_EQ(records.back().bytes,
              static_cast<int64_t>(ExactSum::kParts * sizeof(int64_t)));
  });
}

TEST_P(GradNormTest, ClippedStepsGiveTheBitsOfOneRank) {
  Module reference;
  const Tensors expected = AddLayers(reference, 0);
  FlatOptimizer one(expected, kAdamW);
  const double norm = NormOfOneRank(3);
  for (int step = 0; step < 3; ++step) {
    const Tensors gradients = MicroStepGradients(expected, 3, [&](int rank) {
      return LayersLoss(expected, InputOf(100 * step + rank));
    });
    for (size_t p = 0; p < expected.size(); ++p) {
      expected[p].mutable_grad() = gradients[p];
    }
    StepClipped(one, norm / 4);
  }
  OnRanks(3, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 3; ++step) {
      rank.optimizer->ZeroGrad();
      rank.Backward(step);
      rank.ddp.FinishGradientSync();
      const ClippedStep clipped = StepClipped(*rank.optimizer, norm / 4);
      if (step > 0) continue;
      EXPECT_EQ(clipped.grad_norm, norm);
    }
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// One rank alone has it, in a place that another rank owns.
TEST_P(GradNormTest, AGradientThatIsNotFiniteSkipsTheStepOnAllRanksAlike) {
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    OnRanks(3, [&](Communicator& comm) {
      LayersRank rank(comm, GetParam());
      LossScaler scaler({.initial_scale = 1024, .growth_interval = 2});
      const auto step = [&](int64_t number, bool is_bad) {
        rank.optimizer->ZeroGrad();
        rank.ddp.BeginForward();
        at::Tensor loss = rank.Loss(number) * scaler.scale();
        if (is_bad && comm.rank() == 0) {
          loss = loss + rank.parameters[4].view({-1})[63] * bad;
        }
        loss.backward();
        rank.ddp.FinishGradientSync();
        return StepIfFinite(*rank.optimizer, scaler);
      };
      EXPECT_TRUE(step(0, false).has_stepped);
      const Tensors before = Snapshot(rank.parameters);
      const ClippedStep skipped = step(1, true);
      EXPECT_FALSE(skipped.has_stepped);
      EXPECT_FALSE(std::isfinite(skipped.grad_norm));
      EXPECT_TRUE(EqualBits(rank.parameters, before));
      EXPECT_EQ(scaler.scale(), 512);
      EXPECT_TRUE(step(2, false).has_stepped);
      EXPECT_TRUE(step(3, false).has_stepped);
      EXPECT_EQ(scaler.scale(), 1024);
      EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
    });
  }
}

// Scales are powers of two here: the bits are those of steps without.
TEST_P(GradNormTest, ScaledLossesGiveTheBitsOfPlainOnes) {
  const Tensors expected = LayersTrained(2, 3);
  OnRanks(2, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    LossScaler scaler({.initial_scale = 256, .growth_interval = 1});
    for (int64_t step = 0; step < 3; ++step) {
      rank.optimizer->ZeroGrad();
      rank.ddp.BeginForward();
      (rank.Loss(step) * scaler.scale()).backward();
      rank.ddp.FinishGradientSync();
      EXPECT_TRUE(StepIfFinite(*rank.optimizer, scaler).has_stepped);
    }
    EXPECT_EQ(scaler.scale(), 2048);
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

}  // namespace
}  // namespace trainsys
