// Between backward and FinishGradientSync gradients are on their way.
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>

#include <chrono>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/async_ddp.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Module;

constexpr std::chrono::minutes kTimeout{1};

Tensors Expected(int ranks) {
  Module module;
  const Tensors one = AddLayers(module, 0);
  return MicroStepGradients(
      one, ranks, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
}

TEST(GradientsUnderWayTest, TheyAreUndefinedUntilTheyAreAveraged) {
  const Tensors expected = Expected(2);
  RunRanksHere({.ranks = 2, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      for (const at::Tensor& p : parameters) EXPECT_FALSE(p.grad().defined());
      // Which finds nothing to clip, on any rank.
      torch::nn::utils::clip_grad_norm_(parameters, 1e-3);
      ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    }
  });
}

TEST(GradientsUnderWayTest, WhoSetsOneFailsTheStepOnEveryRank) {
  const Tensors expected = Expected(3);
  RunRanksHere({.ranks = 3, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    if (comm.rank() == 1) {
      parameters[2].mutable_grad() = at::ones_like(parameters[2]);
    }
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.FinishGradientSync(); }),
                AllOf(HasSubstr("'w1' was set between backward and"),
                      HasSubstr(comm.rank() == 1 ? "" : "rank 1 gave")));
    ddp.ZeroGrad();
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    parameters[2].mutable_grad().mul_(0.5);  // now it may be
  });
}

TEST(GradientsUnderWayTest, DroppedOnesArriveAllTheSame) {
  const Tensors expected = Expected(2);
  const auto check = [&](Communicator& comm, const Tensors& parameters,
                         DataParallel& ddp) {
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    if (comm.rank() == 0) ddp.ZeroGrad();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  };
  RunRanksHere({.ranks = 2, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    check(comm, parameters, ddp);
  });
  RunRanksHere({.ranks = 2, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    AsyncDDP ddp(module, comm);
    check(comm, parameters, ddp);
  });
}

TEST(GradientsUnderWayTest, AnotherForwardHasToWait) {
  RunRanksHere({.ranks = 2, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    AsyncDDP ddp(module, comm);
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    const NoSync quiet(ddp);
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.BeginForward(); }),
                HasSubstr("on their way"));
    ddp.FinishGradientSync();
  });
}

TEST(GradientsUnderWayTest, ReduceNowHasToWait) {
  RunRanksHere({.ranks = 2, .timeout = kTimeout}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    at::Tensor(parameters[0]).set_requires_grad(false);
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.ReduceNow(); }),
                HasSubstr("on their way"));
    ddp.FinishGradientSync();
  });
}

}  // namespace
}  // namespace trainsys
