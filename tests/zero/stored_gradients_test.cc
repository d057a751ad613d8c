// ZeRO-2 adds averages up, and ZeRO-1 over reduce-scatter refuses to.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/serialize.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/layers_rank.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::PeerFailed;
using collectives::RankFunction;
using collectives::RunRanksHere;
using ::testing::HasSubstr;
using torch::nn::Module;

TEST(ReducedGradientsTest, AnotherBackwardWithoutZeroGradIsRefused) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, AfterBackward(GradientSharding::kReduced));
    rank.Step(0);
    EXPECT_THAT(ErrorOf<Error>([&] { rank.Backward(1); }),
                HasSubstr("expected ZeroGrad first"));
    EXPECT_THAT(ErrorOf<Error>([&] {
                  const NoSync quiet(rank.ddp);
                  rank.Backward(1);
                }),
                HasSubstr("expected ZeroGrad first"));
    rank.Step(1);
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 2)));
  });
}

TEST(StoredGradientsTest, NoSyncAndWeighedLossesAreRefused) {
  const Way way = AfterBackward(GradientSharding::kStored);
  OnRanks(2, [&](Communicator& comm) {
    LayersRank rank(comm, way);
    EXPECT_THAT(
        ErrorOf<Error>([&] {
          const NoSync quiet(rank.ddp);
          rank.Backward(0);
        }),
        HasSubstr("NoSync, but this rank keeps no gradient of its own"));
    rank.Step(0);
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 1)));
    Module module;
    AddLayers(module, 0);
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] {
                  BucketedDDP(module, comm,
                              WithWay({.weigh_losses = true}, way));
                }),
                HasSubstr("weigh_losses with GradientSharding::kStored"));
  });
}

// By tensor one rank alone has the first gradient, and so the error.
TEST(StoredGradientsTest, ARankWhoseAverageWasChangedCanGiveTheStepUp) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(
        comm, AfterBackward(GradientSharding::kStored, Partition::kByTensor));
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    if (comm.rank() == 0) {
      rank.parameters[0].grad().mul_(0.5);
      const std::string text = ErrorOf<Error>([&] { rank.ddp.BeginForward(); });
      EXPECT_THAT(text, HasSubstr("while averages add up"));
      EXPECT_EQ(ErrorOf<Error>([&] { rank.ddp.BeginForward(); }), text);
      rank.ddp.Reset(text);
    } else {
      rank.Backward(1);
      EXPECT_THAT(ErrorOf<collectives::PeerFailed>(
                      [&] { rank.ddp.FinishGradientSync(); }),
                  HasSubstr("while averages add up"));
    }
    rank.Step(0);
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 1)));
  });
}

TEST(StoredGradientsTest, SoItCanAfterJoin) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(
        comm, AfterBackward(GradientSharding::kStored, Partition::kByTensor));
    ASSERT_TRUE(rank.ddp.Join(1));
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    if (comm.rank() == 0) {
      rank.parameters[0].grad().mul_(0.5);
      const std::string text = ErrorOf<Error>([&] { rank.ddp.Join(1); });
      EXPECT_THAT(text, HasSubstr("while averages add up"));
      rank.ddp.Reset(text);
    } else {
      ASSERT_TRUE(rank.ddp.Join(1));
      rank.Backward(1);
      EXPECT_THAT(ErrorOf<collectives::PeerFailed>(
                      [&] { rank.ddp.FinishGradientSync(); }),
                  HasSubstr("while averages add up"));
    }
    rank.Step(0);
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 1)));
  });
}

// Whoever clips or zeroes them sees a part of them only.
TEST(StoredGradientsTest, AveragesThatWereChangedAreNotAddedTo) {
  const std::vector<std::function<void(const at::Tensor&)>> changes{
      [](const at::Tensor& p) { p.grad().zero_(); },
      [](const at::Tensor& p) { p.mutable_grad().reset(); },
      [](const at::Tensor& p) { p.mutable_grad() = p.grad() * 0.5; }};
  for (const auto& change : changes) {
    OnRanks(2, [&](Communicator& comm) {
      LayersRank rank(comm, AfterBackward(GradientSharding::kStored));
      rank.Backward(0);
      rank.ddp.FinishGradientSync();
      for (const at::Tensor& p : rank.parameters) {
        if (p.grad().defined()) change(p);
      }
      EXPECT_THAT(ErrorOf<Error>([&] { rank.ddp.BeginForward(); }),
                  HasSubstr("expected ZeroGrad"));
      EXPECT_THAT(ErrorOf<Error>([&] { rank.ddp.ReduceNow(); }),
                  HasSubstr("expected ZeroGrad first"));
      rank.Step(0);
      EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 1)));
    });
  }
}

TEST(StoredGradientsTest, WhatIsTrainedCannotChangeWhileGradientsAddUp) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, AfterBackward(GradientSharding::kStored));
    rank.Step(0);
    rank.parameters[0].requires_grad_(false);
    EXPECT_THAT(ErrorOf<Error>([&] { rank.ddp.BeginForward(); }),
                HasSubstr("what is trained has changed while"));
    rank.Step(1);  // drops them first
    EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  });
}

// Micro-steps that use other layers than the last one did; each step like the
// first. Reference: every micro-step's mean over ranks, added up.
TEST(StoredGradientsTest, MicroStepsAddUpWhateverTheyUseInEveryStep) {
  constexpr int64_t kSteps = 3, kMicroSteps = 4;
  const auto loss_of = [](const Tensors& p, int64_t micro_step, int rank) {
    const auto input = static_cast<int>(10 * micro_step + rank);
    // Every other one uses the last layer alone.
    if (micro_step % 2 == 0) return LayersLoss(p, InputOf(input));
    return LayersLoss({p[4], p[5]},
                      Random(static_cast<uint64_t>(input), {4, 16}));
  };
  for (const int ranks : {1, 2, 3}) {
    Module reference;
    const Tensors expected = AddLayers(reference, 0);
    FlatOptimizer one(expected, kAdamW);
    for (int64_t step = 0; step < kSteps; ++step) {
      Tensors sums(expected.size());
      for (int64_t m = 0; m < kMicroSteps; ++m) {
        const Tensors means = MicroStepGradients(expected, ranks, [&](int r) {
          return loss_of(expected, kMicroSteps * step + m, r);
        });
        for (size_t p = 0; p < means.size(); ++p) {
          if (!means[p].defined()) continue;
          sums[p] = sums[p].defined() ? sums[p] + means[p] : means[p];
        }
      }
      for (size_t p = 0; p < sums.size(); ++p) {
        expected[p].mutable_grad() = sums[p];
      }
      one.Step();
    }
    for (const Partition partition : kPartitions) {
      OnRanks(ranks, [&](Communicator& comm) {
        BucketedDDPOptions options = SmallBuckets();
        options.find_unused_parameters = true;
        LayersRank rank(
            comm, AfterBackward(GradientSharding::kStored, partition), options);
        for (int64_t step = 0; step < kSteps; ++step) {
          rank.ddp.ZeroGrad();
          for (int64_t m = 0; m < kMicroSteps; ++m) {
            rank.ddp.BeginForward();
            loss_of(rank.parameters, kMicroSteps * step + m, comm.rank())
                .backward();
            rank.ddp.FinishGradientSync();
          }
          rank.optimizer->Step();
        }
        EXPECT_TRUE(EqualBits(rank.parameters, expected)) << ranks << " ranks";
      });
    }
  }
}

}  // namespace
}  // namespace trainsys
