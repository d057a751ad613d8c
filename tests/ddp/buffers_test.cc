// Buffers: rank 0's at construction, and again in each step where that is asked
// for.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::InvalidArgument;
using collectives::RankFunction;
using collectives::Record;
using collectives::RunRanksHere;
using ::testing::HasSubstr;
using torch::nn::Module;

constexpr int kRanks = 3;

void OnRanks(const RankFunction& fn) {
  RunRanksHere({.ranks = kRanks, .timeout = std::chrono::minutes(1)}, fn);
}

size_t NumBroadcasts(Communicator& comm) {
  size_t count = 0;
  for (const Record& r : comm.recorder().Records()) {
    count += r.operation == collectives::Operation::kBroadcast;
  }
  return count;
}

// Of every kind; others for each seed.
Tensors MakeBuffers(int seed) {
  const auto s = static_cast<uint64_t>(seed);
  return {Random(50 + s, {6}),
          at::full({}, seed, at::kLong),
          at::full({3}, seed % 2 == 0, at::kBool),
          Random(60 + s, {5}, at::kDouble),
          at::empty({0, 4}),
          Random(70 + s, {3, 4}).t(),
          at::full({2}, seed == 0 ? std::numeric_limits<float>::quiet_NaN()
                                  : static_cast<float>(seed))};
}

Tensors AddBuffers(Module& module, int seed) {
  Tensors buffers = MakeBuffers(seed);
  for (size_t b = 0; b < buffers.size(); ++b) {
    module.register_buffer("buffer" + std::to_string(b), buffers[b]);
  }
  return buffers;
}

void Overwrite(const Tensors& buffers, int seed) {
  const at::NoGradGuard no_grad;
  const Tensors values = MakeBuffers(seed);
  for (size_t b = 0; b < buffers.size(); ++b) buffers[b].copy_(values[b]);
}

TEST(BuffersTest, TheyStartAsRank0sWhetherOrNotForwardsBroadcastThem) {
  OnRanks([](Communicator& comm) {
    for (const bool broadcasts : {false, true}) {
      Module module;
      AddLayers(module, 0);
      const Tensors buffers = AddBuffers(module, comm.rank());
      const BucketedDDP ddp(module, comm, {.broadcast_buffers = broadcasts});
      EXPECT_TRUE(EqualBits(buffers, MakeBuffers(0)));
      EXPECT_FALSE(buffers[5].is_contiguous());
    }
  });
}

TEST(BuffersTest, EachStepMakesThemRank0sAgainByOneBroadcast) {
  OnRanks([](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    const Tensors buffers = AddBuffers(module, 0);
    BucketedDDP ddp(module, comm, {.broadcast_buffers = true});
    for (int step = 0; step < 3; ++step) {
      Overwrite(buffers, 10 * step + comm.rank());
      const size_t before = NumBroadcasts(comm);
      ddp.BeginForward();
      // One more before the second step, whose plan follows rank 0's order.
      const size_t expected = step == 1 ? 2 : 1;
      EXPECT_EQ(NumBroadcasts(comm) - before, expected);
      EXPECT_TRUE(EqualBits(buffers, MakeBuffers(10 * step)));
      ddp.BeginForward();  // a second forward of the step
      EXPECT_EQ(NumBroadcasts(comm) - before, expected);
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      ddp.FinishGradientSync();
    }
  });
}

TEST(BuffersTest, NoForwardTouchesThemUnlessAskedTo) {
  OnRanks([](Communicator& comm) {
    for (const bool broadcasts : {false, true}) {
      Module module;
      AddLayers(module, 0);
      const Tensors buffers = AddBuffers(module, 0);
      BucketedDDP ddp(module, comm, {.broadcast_buffers = broadcasts});
      Overwrite(buffers, comm.rank());
      const size_t before = NumBroadcasts(comm);
      {
        const at::NoGradGuard evaluation;
        ddp.BeginForward();
      }
      {
        const NoSync quiet(ddp);
        ddp.BeginForward();
      }
      if (!broadcasts) ddp.BeginForward();
      EXPECT_EQ(NumBroadcasts(comm), before);
      EXPECT_TRUE(EqualBits(buffers, MakeBuffers(comm.rank())));
    }
  });
}

TEST(BuffersTest, TwoForwardsBeforeOneBackwardKeepWhatTheGraphHasSaved) {
  const auto loss_of = [](const at::Tensor& w, const at::Tensor& buffer,
                          int rank) {
    return (at::matmul(InputOf(rank), w) * buffer).square().mean();
  };
  const at::Tensor scale = Random(9, {4});
  Module reference;
  const at::Tensor one = reference.register_parameter("w", Random(1, {8, 4}));
  const Tensors expected = MicroStepGradients({one}, kRanks, [&](int rank) {
    return loss_of(one, scale, rank) + loss_of(one, scale, 10 + rank);
  });
  OnRanks([&](Communicator& comm) {
    for (const bool broadcasts : {false, true}) {
      Module module;
      const at::Tensor w = module.register_parameter("w", Random(1, {8, 4}));
      const at::Tensor buffer =
          module.register_buffer("scale", scale + comm.rank());
      BucketedDDP ddp(module, comm, {.broadcast_buffers = broadcasts});
      for (const bool is_first_quiet : {false, true, true}) {
        ddp.ZeroGrad();
        at::Tensor loss;
        {
          std::optional<NoSync> quiet;
          if (is_first_quiet) quiet.emplace(ddp);
          ddp.BeginForward();
          loss = loss_of(w, buffer, comm.rank());
        }
        ddp.BeginForward();
        loss = loss + loss_of(w, buffer, 10 + comm.rank());
        loss.backward();
        ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits({w.grad()}, expected));
      }
    }
  });
}

// Its statistics are buffers that each forward of each rank changes.
TEST(BuffersTest, ABatchNormMayRunTwiceBeforeOneBackward) {
  OnRanks([](Communicator& comm) {
    torch::nn::BatchNorm1dImpl norm(8);
    BucketedDDP ddp(norm, comm, {.broadcast_buffers = true});
    const auto compare = [&] { CheckSameValues(norm, comm); };
    for (int step = 0; step < 2; ++step) {
      ddp.BeginForward();
      EXPECT_EQ(ErrorOf<InvalidArgument>(compare), "no error");
      const at::Tensor first = norm.forward(InputOf(comm.rank()));
      ddp.BeginForward();
      const at::Tensor second = norm.forward(InputOf(10 + comm.rank()));
      (first + second).square().mean().backward();
      ddp.FinishGradientSync();
      EXPECT_THAT(ErrorOf<InvalidArgument>(compare), HasSubstr("running_mean"));
    }
  });
}

}  // namespace
}  // namespace trainsys
