// An exception in the middle of a step: all ranks are told, and go on.
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
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
using collectives::PeerFailed;
using collectives::RankFailed;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using torch::nn::Module;

constexpr int kRanks = 3;
constexpr std::chrono::minutes kTimeout{1};

struct Boom : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where a rank throws.
enum class Point {
  kUnderNoSync,    // in the backward of the first micro-step
  kForward,        // of the last one
  kFirstGradient,  // in backward, before any gradient is there
  kHalfway,        // in backward, when the last layer's gradients are there
  kAfterBackward   // before FinishGradientSync
};
constexpr Point kPoints[] = {Point::kUnderNoSync, Point::kForward,
                             Point::kFirstGradient, Point::kHalfway,
                             Point::kAfterBackward};

at::Tensor Throw(const at::Tensor&) { throw Boom("no luck"); }

// As LayersLoss; backward throws when it comes to the first layer's output, or
// to the loss.
at::Tensor LossThatThrows(const Tensors& parameters, const at::Tensor& x,
                          std::optional<Point> point) {
  const Tensors first(parameters.begin(), parameters.begin() + 2);
  const Tensors others(parameters.begin() + 2, parameters.end());
  const at::Tensor h = (at::matmul(x, first[0]) + first[1]).tanh();
  const at::Tensor loss = LayersLoss(others, h);
  if (point == Point::kHalfway) h.register_hook(Throw);
  if (point == Point::kFirstGradient) loss.register_hook(Throw);
  return loss;
}

at::Tensor Input(int rank, int step, int micro_step) {
  return InputOf(rank + 10 * (2 * step + micro_step));
}

// Two micro-steps. `point`: where this rank throws.
void ForwardAndBackward(const Tensors& parameters, BucketedDDP& ddp, int rank,
                        int step, std::optional<Point> point) {
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    const bool is_last = micro_step == 1;
    std::optional<NoSync> quiet;
    if (!is_last) quiet.emplace(ddp);
    ddp.BeginForward();
    if (is_last && point == Point::kForward) throw Boom("no luck");
    const auto throws_at = is_last ? point
                           : point == Point::kUnderNoSync
                               ? Point::kHalfway
                               : std::optional<Point>();
    LossThatThrows(parameters, Input(rank, step, micro_step), throws_at)
        .backward();
  }
  if (point == Point::kAfterBackward) throw Boom("no luck");
}

// The means over ranks of the sums over micro-steps.
Tensors Expected(int step) {
  Module module;
  const Tensors parameters = AddLayers(module, 0);
  Tensors sum;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const at::Tensor& p : parameters) p.mutable_grad().reset();
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
      LayersLoss(parameters, Input(rank, step, micro_step)).backward();
    }
    const Tensors of_rank = GradientsOf(parameters);
    if (rank == 0) sum = of_rank;
    for (size_t p = 0; rank > 0 && p < sum.size(); ++p) sum[p] += of_rank[p];
  }
  for (at::Tensor& gradient : sum) gradient /= kRanks;
  return sum;
}

// A step in which rank `bad` throws, and goes on.
void FailingStep(const Tensors& parameters, BucketedDDP& ddp, int rank, int bad,
                 int step, Point point) {
  const auto mine = rank == bad ? std::optional(point) : std::nullopt;
  try {
    ForwardAndBackward(parameters, ddp, rank, step, mine);
    ddp.FinishGradientSync();
    ADD_FAILURE() << "rank " << rank << " was not told";
  } catch (const Boom& e) {
    EXPECT_EQ(rank, bad);
    ddp.Reset(e.what());
  } catch (const PeerFailed& e) {
    EXPECT_NE(rank, bad);
    EXPECT_EQ(e.rank(), bad);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("step " + std::to_string(step)),
                                HasSubstr("rank " + std::to_string(bad)),
                                HasSubstr("no luck")));
  }
  for (const at::Tensor& p : parameters) EXPECT_FALSE(p.grad().defined());
}

TEST(FailedBackwardTest, AnyRankMayThrowAnywhereAndTheNextStepIsRight) {
  constexpr int kSteps = 5;
  std::vector<Tensors> expected;
  for (int step = 0; step < kSteps; ++step) expected.push_back(Expected(step));
  for (const Point point : kPoints) {
    SCOPED_TRACE("point " + std::to_string(static_cast<int>(point)));
    RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, [&](auto& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
      for (int step = 0; step < kSteps; ++step) {
        if (step != 1 && step != 4) {  // also two in a row, and the first
          FailingStep(parameters, ddp, comm.rank(), step % kRanks, step, point);
          continue;
        }
        ForwardAndBackward(parameters, ddp, comm.rank(), step, std::nullopt);
        ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected[step]));
        ddp.ZeroGrad();
      }
    });
  }
}

TEST(FailedBackwardTest, AllRanksMayThrowAtOnceAtPointsOfTheirOwn) {
  const Tensors expected = Expected(1);
  RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, [&](auto& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    const Point point = kPoints[2 + comm.rank()];
    EXPECT_THROW(ForwardAndBackward(parameters, ddp, comm.rank(), 0, point),
                 Boom);
    ddp.Reset("no luck on rank " + std::to_string(comm.rank()));
    ForwardAndBackward(parameters, ddp, comm.rank(), 1, std::nullopt);
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

TEST(FailedBackwardTest, WhereNothingRunsResetSendsNothingAndKeepsGradients) {
  const Tensors expected = Expected(0);
  RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, [&](auto& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    if (comm.rank() == 1) ddp.Reset("nothing began");
    ForwardAndBackward(parameters, ddp, comm.rank(), 0, std::nullopt);
    ddp.FinishGradientSync();
    const size_t before = comm.recorder().Records().size();
    if (comm.rank() == 1) ddp.Reset("all is over");
    EXPECT_EQ(comm.recorder().Records().size(), before);
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

TEST(FailedBackwardTest, BuffersAreBroadcastAsOftenWhoeverThrows) {
  RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, [&](auto& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    module.register_buffer("buffer", at::ones({2}));
    BucketedDDP ddp(module, comm, {.broadcast_buffers = true});
    for (int step = 0; step < 2; ++step) {
      try {
        ddp.BeginForward();
        at::Tensor loss = LayersLoss(parameters, InputOf(comm.rank()));
        if (comm.rank() == 1) throw Boom("between forwards");
        {
          const NoSync quiet(ddp);
          ddp.BeginForward();
          loss = loss + LayersLoss(parameters, InputOf(10 + comm.rank()));
        }
        ddp.BeginForward();
        loss.backward();
        ddp.FinishGradientSync();
        ADD_FAILURE() << "rank " << comm.rank() << " was not told";
      } catch (const Boom& e) {
        ddp.Reset(e.what());
      } catch (const PeerFailed& e) {
        EXPECT_THAT(e.what(), HasSubstr("between forwards"));
      }
    }
  });
}

TEST(FailedBackwardTest, WhoLeavesItsFunctionFailsTheRunAsItself) {
  for (const Point point : kPoints) {
    SCOPED_TRACE("point " + std::to_string(static_cast<int>(point)));
    std::vector<std::string> texts(kRanks);
    const auto train = [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
      const auto mine = comm.rank() == 1 ? std::optional(point) : std::nullopt;
      try {
        ForwardAndBackward(parameters, ddp, comm.rank(), 0, mine);
        ddp.FinishGradientSync();
      } catch (const PeerFailed& e) {
        EXPECT_EQ(e.rank(), 1);
        texts[static_cast<size_t>(comm.rank())] = e.what();
        throw;
      }
    };
    try {
      RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, train);
      ADD_FAILURE() << "nobody failed";
    } catch (const RankFailed& e) {
      EXPECT_STREQ(e.what(), "rank 1: no luck");
      EXPECT_THROW(std::rethrow_exception(e.cause()), Boom);
    }
    // A withdrawn call may be seen a moment before its cause is known.
    const auto is_told = AnyOf(HasSubstr("no luck"), HasSubstr("withdrew"));
    EXPECT_THAT(texts[0], is_told);
    EXPECT_THAT(texts[2], is_told);
  }
}

TEST(FailedBackwardTest, WhoThrowsBeforeItWeighsItsLossGivesUpLikeOthers) {
  RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, [&](auto& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    try {
      ddp.BeginForward();
      const at::Tensor loss = LayersLoss(parameters, InputOf(comm.rank()));
      if (comm.rank() == 1) throw Boom("no weight");
      ddp.Weigh(loss, 2).backward();
      ddp.FinishGradientSync();
      ADD_FAILURE() << "rank " << comm.rank() << " was not told";
    } catch (const Boom& e) {
      ddp.Reset(e.what());
    } catch (const PeerFailed& e) {
      EXPECT_THAT(e.what(), HasSubstr("no weight"));
    }
  });
}

}  // namespace
}  // namespace trainsys
