#include "trainsys/zero/zero_optimizer.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/proof/references.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/zero/flat_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using ::testing::ElementsAre;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kSteps = 3;
constexpr AdamWOptions kAdamW{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

std::shared_ptr<SmallModel> MakeModel(int rank, at::ScalarType dtype) {
  const auto model = MakeMlp(100 + static_cast<uint64_t>(rank));
  model->to(dtype);
  return model;
}

at::Tensor LossOfRank(SmallModel& model, int rank, int ranks,
                      at::ScalarType dtype) {
  Samples samples = MakeSamples(7).Part(rank, ranks);
  samples.x = samples.x.to(dtype);
  return LossOf(model, samples);
}

// What one rank ended with.
struct Trained {
  Tensors parameters;
  int64_t state_bytes = 0;
};

using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const Tensors&, Communicator&)>;

std::vector<Trained> TrainOnRanks(int ranks, at::ScalarType dtype,
                                  const MakeOptimizer& make_optimizer) {
  std::vector<Trained> results(static_cast<size_t>(ranks));
  RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
    const auto model = MakeModel(comm.rank(), dtype);
    BucketedDDP ddp(*model, comm, {.bucket_bytes = 32 << 10});
    const auto optimizer = make_optimizer(ddp.parameters(), comm);
    for (int64_t step = 0; step < kSteps; ++step) {
      optimizer->ZeroGrad();
      ddp.BeginForward();
      LossOfRank(*model, comm.rank(), comm.ranks(), dtype).backward();
      ddp.FinishGradientSync();
      optimizer->Step();
    }
    results[static_cast<size_t>(comm.rank())] = {Snapshot(ddp.parameters()),
                                                 optimizer->StateBytes()};
  });
  return results;
}

Tensors TrainOnOneRank(
    int ranks, at::ScalarType dtype,
    const std::function<std::unique_ptr<Optimizer>(const Tensors&)>& make) {
  const auto model = MakeModel(0, dtype);
  const auto optimizer = make(model->parameters());
  TrainInMicroSteps(model->parameters(), *optimizer, kSteps, ranks,
                    [&](int64_t, int rank) {
                      return LossOfRank(*model, rank, ranks, dtype);
                    });
  return Snapshot(model->parameters());
}

std::unique_ptr<Optimizer> Sharded(const Tensors& p, Communicator& comm) {
  return std::make_unique<ZeROOptimizer>(p, comm, kAdamW);
}

std::unique_ptr<Optimizer> Unsharded(const Tensors& p) {
  return std::make_unique<FlatOptimizer>(p, kAdamW);
}

class ZeROOptimizerTest
    : public testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(ZeROOptimizerTest,
       EqualsOneRankAndUnshardedRanksBitForBitAndLibtorchNearly) {
  const auto [ranks, dtype] = GetParam();
  const Tensors one = TrainOnOneRank(ranks, dtype, Unsharded);
  const Tensors libtorch = TrainOnOneRank(
      ranks, dtype, [](const Tensors& p) { return LibtorchAdamW(p, kAdamW); });
  for (const Trained& rank : TrainOnRanks(ranks, dtype, Sharded)) {
    EXPECT_TRUE(EqualBits(rank.parameters, one));
    EXPECT_LE(MaxDifference(rank.parameters, libtorch),
              dtype == at::kDouble ? 1e-12 : 1e-4);
  }
  const auto unsharded = [](const Tensors& p, Communicator&) {
    return Unsharded(p);
  };
  for (const Trained& rank : TrainOnRanks(ranks, dtype, unsharded)) {
    EXPECT_TRUE(EqualBits(rank.parameters, one));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, ZeROOptimizerTest,
    testing::Combine(testing::Values(1, 2, 3, 4, 5, 7, 8),
                     testing::Values(at::kFloat, at::kDouble)),
    [](const auto& info) {
      return "ranks" + std::to_string(std::get<0>(info.param)) +
             (std::get<1>(info.param) == at::kFloat ? "_f32" : "_f64");
    });

TEST(ZeROOptimizerTest, StateIsSplitEvenlyAndAddsUpToTheWhole) {
  int64_t elems = 0, padded = 0;
  for (const at::Tensor& p : MakeMlp(0)->parameters()) {
    elems += p.numel();
    padded += AlignedElems(p.numel(), 4);
  }
  for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    int64_t sum = 0;
    for (const Trained& rank : TrainOnRanks(ranks, at::kFloat, Sharded)) {
      sum += rank.state_bytes;
      EXPECT_LE(rank.state_bytes, 1.1 * 8 * elems / ranks + 4096);
    }
    EXPECT_EQ(sum, 8 * padded) << ranks << " ranks";
  }
}

Tensors MakeParameters(const std::vector<std::vector<int64_t>>& shapes) {
  Tensors parameters;
  for (const auto& shape : shapes) {
    at::Generator random = MakeRankGenerator(parameters.size(), 0, 0);
    parameters.push_back(at::randn(shape, random).set_requires_grad(true));
  }
  return parameters;
}

// Averaged already: the same on all ranks.
void SetGradients(const Tensors& parameters, int64_t step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor p = parameters[i];
    p.mutable_grad() = at::randn(p.sizes(), MakeRankGenerator(i, step, 1));
  }
}

TEST(ZeROOptimizerTest, FewerElementsThanRanksAndEmptyParametersTrainAlike) {
  const std::vector<std::vector<std::vector<int64_t>>> models{
      {{5}}, {{1}, {1}, {1}, {1}, {1}}, {{16}, {4}, {0, 8}}, {{}, {7, 11}}};
  for (const auto& shapes : models) {
    const Tensors one = MakeParameters(shapes);
    FlatOptimizer unsharded(one, kAdamW);
    for (int64_t step = 0; step < kSteps; ++step) {
      SetGradients(one, step);
      unsharded.Step();
    }
    for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
        const Tensors parameters = MakeParameters(shapes);
        ZeROOptimizer optimizer(parameters, comm, kAdamW);
        for (int64_t step = 0; step < kSteps; ++step) {
          SetGradients(parameters, step);
          optimizer.Step();
        }
        EXPECT_TRUE(EqualBits(parameters, one));
      });
    }
  }
}

TEST(ZeROOptimizerTest, RanksWithoutAShardHoldNoState) {
  RunRanksHere({.ranks = 8}, [](Communicator& comm) {
    const ZeROOptimizer optimizer(MakeParameters({{5}}), comm, kAdamW);
    EXPECT_EQ(optimizer.StateBytes(), comm.rank() == 0 ? 2 * 16 * 4 : 0);
  });
}

// Four parameters of one alignment each, on four ranks: each rank owns one.
TEST(ZeROOptimizerTest, BetweenUpdateAndGatherEachShardIsOutOfSync) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    const Tensors parameters = MakeParameters({{16}, {16}, {16}, {16}});
    ZeROOptimizer optimizer(parameters, comm, kAdamW);
    EXPECT_TRUE(CheckInSync(parameters, comm).empty());
    SetGradients(parameters, 0);
    optimizer.UpdateShard();
    const auto differences = CheckInSync(parameters, comm);
    ASSERT_EQ(differences.size(), 4);
    EXPECT_THAT(differences[0].ranks, ElementsAre(1, 2, 3));
    for (int r = 1; r < 4; ++r) {
      EXPECT_THAT(differences[static_cast<size_t>(r)].ranks, ElementsAre(r));
    }
    optimizer.GatherParameters();
    EXPECT_TRUE(CheckInSync(parameters, comm).empty());
  });
}

TEST(ZeROOptimizerTest, AParameterWithoutAGradientIsNotTouchedOnAnyRank) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const Tensors parameters = MakeParameters({{40}, {40}, {40}});
    const Tensors before = Snapshot(parameters);
    ZeROOptimizer optimizer(parameters, comm, kAdamW);
    SetGradients({parameters[0], parameters[2]}, 0);
    optimizer.Step();
    EXPECT_TRUE(EqualBits({parameters[1]}, {before[1]}));
    EXPECT_FALSE(EqualBits({parameters[0]}, {before[0]}));
    EXPECT_FALSE(EqualBits({parameters[2]}, {before[2]}));
  });
}

TEST(ZeROOptimizerTest, BadOptionsAndParametersAreRefusedOnEveryRank) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const auto refused = [&](const Tensors& p, const AdamWOptions& options) {
      EXPECT_THROW(ZeROOptimizer(p, comm, options),
                   collectives::InvalidArgument);
    };
    refused({}, kAdamW);
    refused({at::ones({2}, at::kLong)}, kAdamW);
    refused({at::ones({2})}, AdamWOptions{.lr = -1});
    comm.Barrier("both go on");
  });
}

}  // namespace
}  // namespace trainsys
