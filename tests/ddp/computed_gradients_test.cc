// Gradients that backward() did not make, and gradients of gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::RankFunction;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::autograd::grad;
using torch::nn::Module;

constexpr int kRanks = 3;

void OnRanks(const RankFunction& fn) {
  RunRanksHere({.ranks = kRanks, .timeout = std::chrono::minutes(1)}, fn);
}

size_t NumRecords(Communicator& comm) {
  return comm.recorder().Records().size();
}

// The loss and the squared length of its gradient with respect to the input.
at::Tensor PenalizedLoss(const Tensors& parameters, int rank) {
  const at::Tensor x = InputOf(rank).requires_grad_();
  const at::Tensor loss = LayersLoss(parameters, x);
  const at::Tensor slope =
      grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  return loss + slope.square().sum();
}

Tensors Expected(at::Tensor (*loss_of)(const Tensors&, int rank)) {
  Module module;
  const Tensors one = AddLayers(module, 0);
  return MicroStepGradients(one, kRanks,
                            [&](int rank) { return loss_of(one, rank); });
}

at::Tensor PlainLoss(const Tensors& parameters, int rank) {
  return LayersLoss(parameters, InputOf(rank));
}

TEST(ComputedGradientsTest, BackwardWithCreateGraphIsRefusedAndSendsNothing) {
  const Tensors expected = Expected(PlainLoss);
  OnRanks([&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    ddp.BeginForward();
    const at::Tensor loss = PlainLoss(parameters, comm.rank());
    const size_t before = NumRecords(comm);
    const std::string text = ErrorOf<Error>([&] {
      loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    });
    EXPECT_THAT(text,
                AllOf(HasSubstr("parameter 'b2'"), HasSubstr("create_graph"),
                      HasSubstr("autograd::grad")));
    EXPECT_EQ(NumRecords(comm), before);
    ddp.Reset(text);
    ddp.BeginForward();
    PlainLoss(parameters, comm.rank()).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

TEST(ComputedGradientsTest, AGradientPenaltyByGradHasTheBitsOfReferenceA) {
  const Tensors expected = Expected(PenalizedLoss);
  OnRanks([&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      PenalizedLoss(parameters, comm.rank()).backward();
      ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    }
  });
}

TEST(ComputedGradientsTest, AGradientPenaltyLeavesNoMemoryBehind) {
  std::vector<std::unique_ptr<MemoryLedger>> ledgers;
  for (int r = 0; r < kRanks; ++r) {
    ledgers.push_back(std::make_unique<MemoryLedger>());
  }
  OnRanks([&](Communicator& comm) {
    const MemoryLedger& ledger = *ledgers[static_cast<size_t>(comm.rank())];
    const LedgerScope scope(ledger);
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    MemorySplit after_first;
    for (int step = 0; step < 20; ++step) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      PenalizedLoss(parameters, comm.rank()).backward();
      ddp.FinishGradientSync();
      if (step == 0) after_first = ledger.Current();
    }
    EXPECT_GT(after_first.Total(), 0);
    EXPECT_EQ(ledger.Current().bytes, after_first.bytes);
  });
}

// As a functional style of training has it: no hook sees it.
void ComputeGradients(const Tensors& parameters, int rank) {
  const Tensors gradients = grad({PlainLoss(parameters, rank)}, parameters);
  for (size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].mutable_grad() = gradients[p];
  }
}

TEST(ComputedGradientsTest, GradSendsNothingAndTheErrorNamesReduceNow) {
  OnRanks([](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    ddp.BeginForward();
    const size_t before = NumRecords(comm);
    ComputeGradients(parameters, comm.rank());
    EXPECT_EQ(NumRecords(comm), before);
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.FinishGradientSync(); }),
                AllOf(HasSubstr("'w0' on all ranks"), HasSubstr("ReduceNow")));
  });
}

TEST(ComputedGradientsTest, ReduceNowAveragesThem) {
  const Tensors expected = Expected(PlainLoss);
  OnRanks([&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    for (int step = 0; step < 3; ++step) {
      ComputeGradients(parameters, comm.rank());
      ddp.ReduceNow();
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
      ddp.ZeroGrad();
      // And one by backward(): both may take turns.
      ddp.BeginForward();
      PlainLoss(parameters, comm.rank()).backward();
      ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    }
  });
}

TEST(ComputedGradientsTest, ReduceNowAveragesWhatNoSyncHasAddedUp) {
  const Tensors expected = Expected(PlainLoss);
  OnRanks([&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    {
      const NoSync quiet(ddp);
      ddp.BeginForward();
      PlainLoss(parameters, comm.rank()).backward();
      EXPECT_THAT(ErrorOf<Error>([&] { ddp.ReduceNow(); }),
                  HasSubstr("outside NoSync"));
    }
    ddp.ReduceNow();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

}  // namespace
}  // namespace trainsys
