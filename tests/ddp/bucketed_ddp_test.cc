#include "trainsys/ddp/bucketed_ddp.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/testing/record_matchers.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseScope;
using collectives::RunRanksHere;
using ::testing::Each;
using torch::nn::Module;

class BucketedDDPTest
    : public testing::TestWithParam<std::tuple<int, int64_t>> {};

constexpr int kRounds = 2;

// Trains nothing; expects each rank to end up with `expected` gradients, and
// every bucket to be posted while backward runs.
void ExpectGradients(Communicator& comm, int64_t bucket_bytes,
                     const std::vector<Tensors>& expected) {
  const auto model = MakeMlp(100 + static_cast<uint64_t>(comm.rank()));
  BucketedDDP ddp(*model, comm, {.bucket_bytes = bucket_bytes});
  EXPECT_TRUE(EqualBits(ddp.parameters(), MakeMlp(100)->parameters()))
      << "rank 0's parameters win";
  for (int round = 0; round < kRounds; ++round) {
    ddp.ZeroGrad();
    ddp.BeginForward();
    const at::Tensor loss =
        LossOf(*model, MakeSamples(round).Part(comm.rank(), comm.ranks()));
    {
      const PhaseScope phase(comm.recorder(), "backward", round);
      loss.backward();
    }
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(ddp.parameters()), expected[round]));
    const auto backward = *FindPhase(comm.recorder(), "backward", round);
    EXPECT_EQ(BucketRecords(comm.recorder(), backward.begin_ns,
                            std::numeric_limits<int64_t>::max())
                  .size(),
              ddp.buckets().size());
    if (ddp.buckets().size() < 2) continue;  // nothing is left to overlap with
    EXPECT_THAT(comm.recorder(),
                OverlapsBackward(round, ddp.buckets(), ddp.ready_ns()));
  }
}

TEST_P(BucketedDDPTest, EveryRankHasTheBitsOfOneRankAndOverlaps) {
  const auto [ranks, bucket_bytes] = GetParam();
  const auto model = MakeMlp(100);
  std::vector<Tensors> expected;
  for (int round = 0; round < kRounds; ++round) {
    const Samples samples = MakeSamples(round);
    expected.push_back(MicroStepGradients(
        model->parameters(), ranks, [&, n = ranks](int rank) {
          return LossOf(*model, samples.Part(rank, n));
        }));
  }
  RunRanksHere({.ranks = ranks}, [&, bytes = bucket_bytes](Communicator& comm) {
    ExpectGradients(comm, bytes, expected);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, BucketedDDPTest,
    testing::Combine(testing::Values(1, 2, 3, 4, 5, 7, 8),
                     testing::Values(1, 32 << 10, 25 << 20)),
    [](const auto& info) {
      return "ranks" + std::to_string(std::get<0>(info.param)) + "_bytes" +
             std::to_string(std::get<1>(info.param));
    });

TEST(BucketedDDPTest, ATiedParameterHasOnePlaceAndOneGradient) {
  const auto add = [](Module& module, uint64_t seed) {
    Tensors parameters = AddLayers(module, seed);
    // The middle layer again, under other names.
    parameters.insert(parameters.begin() + 4,
                      {module.register_parameter("tied w", parameters[2]),
                       module.register_parameter("tied b", parameters[3])});
    return parameters;
  };
  Module reference;
  const Tensors one = add(reference, 0);
  const Tensors distinct{one[0], one[1], one[2], one[3], one[6], one[7]};
  const Tensors expected = MicroStepGradients(
      distinct, 3, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = add(module, comm.rank());
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    EXPECT_EQ(ddp.parameters().size(), 6);
    EXPECT_EQ(ddp.buckets().size(), 6);
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(ddp.parameters()), expected));
  });
}

TEST(BucketedDDPTest, FrozenParametersAreBroadcastButNotAveraged) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    Module module;
    const at::Tensor frozen = module.register_parameter(
        "frozen", at::full({5}, 7.0 + comm.rank()), /*requires_grad=*/false);
    const Tensors parameters = AddLayers(module, comm.rank());
    BucketedDDP ddp(module, comm);
    EXPECT_EQ(ddp.parameters().size(), parameters.size());
    EXPECT_TRUE(EqualBits({frozen}, {at::full({5}, 7.0)}));
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank()) * frozen[0]).backward();
    ddp.FinishGradientSync();
    EXPECT_FALSE(frozen.grad().defined());
  });
}

TEST(BucketedDDPTest, TypesMixAndEachGradientKeepsItsOwn) {
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kDouble, at::kFloat};
  Module reference;
  const Tensors one = AddLayers(reference, 0, dtypes);
  const Tensors expected = MicroStepGradients(
      one, 4, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
  RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, comm.rank(), dtypes);
    BucketedDDP ddp(module, comm);
    EXPECT_EQ(ddp.buckets().size(), 2);
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

TEST(BucketedDDPTest, AnEmptyParameterTakesPart) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    for (const int64_t bucket_bytes : {1, 1 << 20}) {
      Module module;
      const at::Tensor empty =
          module.register_parameter("empty", Random(1, {0, 8}));
      const Tensors parameters = AddLayers(module, comm.rank());
      BucketedDDP ddp(module, comm, {.bucket_bytes = bucket_bytes});
      ddp.BeginForward();
      (LayersLoss(parameters, InputOf(comm.rank())) + empty.sum()).backward();
      ddp.FinishGradientSync();
      EXPECT_EQ(empty.grad().sizes(), (at::IntArrayRef{0, 8}));
    }
  });
}

TEST(BucketedDDPTest, ACheckpointedBlockRunsEachHookAndPostsEachBucketOnce) {
  const auto plain = MakeResidualModel(0, Plain());
  const Samples samples = MakeSamples(0);
  const Tensors expected = MicroStepGradients(
      plain->parameters(), 2,
      [&](int rank) { return LossOf(*plain, samples.Part(rank, 2)); });
  const auto recorders = RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    const auto model = MakeResidualModel(comm.rank(), Checkpointed());
    BucketedDDP ddp(*model, comm, {.bucket_bytes = 1});
    std::vector<int> calls(ddp.parameters().size(), 0);
    std::vector<GradientHook> hooks;
    for (size_t p = 0; p < calls.size(); ++p) {
      hooks.emplace_back(ddp.parameters()[p], [&calls, p] { ++calls[p]; });
    }
    ddp.BeginForward();
    LossOf(*model, samples.Part(comm.rank(), 2)).backward();
    ddp.FinishGradientSync();
    EXPECT_THAT(calls, Each(1));
    EXPECT_TRUE(EqualBits(GradientsOf(ddp.parameters()), expected));
  });
  for (const auto& recorder : recorders) {
    EXPECT_EQ(
        BucketRecords(recorder, 0, std::numeric_limits<int64_t>::max()).size(),
        plain->parameters().size());
  }
}

}  // namespace
}  // namespace trainsys
