// Parameters that are frozen and thawed while training goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/timeline/overlap.h"
#include "trainsys/zero/flat_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::Record;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Ne;
using torch::nn::Module;

using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const Tensors& parameters)>;

constexpr AdamWOptions kDecays{.lr = 0.01, .weight_decay = 0.1};

struct OptimizerCase {
  std::string name;
  MakeOptimizer make;
};

const std::vector<OptimizerCase> kOptimizers{
    {"our AdamW",
     [](const Tensors& parameters) {
       return std::make_unique<FlatOptimizer>(parameters, kDecays);
     }},
    {"libtorch's AdamW",
     [](const Tensors& parameters) {
       return LibtorchAdamW(parameters, kDecays);
     }},
    {"libtorch's SGD",
     [](const Tensors& parameters) { return LibtorchSGD(parameters, 0.1); }},
};

constexpr int kSteps = 6;
bool IsFrozenIn(int step) { return step == 2 || step == 3; }

void SetFrozen(const Tensors& parameters, bool is_frozen) {
  for (size_t p : {0, 1}) {  // layer 0: w0, b0
    at::Tensor(parameters[p]).set_requires_grad(!is_frozen);
  }
}

at::Tensor LossOfStep(const Tensors& parameters, int64_t step, int rank) {
  return LayersLoss(parameters, InputOf(10 * static_cast<int>(step) + rank));
}

// The parameters after each step of reference A.
std::vector<Tensors> TrainOneRank(int ranks, const MakeOptimizer& make,
                                  const std::function<bool(int)>& is_frozen) {
  Module module;
  const Tensors parameters = AddLayers(module, 0);
  const auto optimizer = make(parameters);
  std::vector<Tensors> after;
  for (int step = 0; step < kSteps; ++step) {
    SetFrozen(parameters, is_frozen(step));
    TrainInMicroSteps(
        parameters, *optimizer, /*steps=*/1, ranks,
        [&](int64_t, int rank) { return LossOfStep(parameters, step, rank); });
    after.push_back(Snapshot(parameters));
  }
  return after;
}

int64_t BucketBytes(const collectives::Recorder& recorder, size_t first) {
  int64_t bytes = 0;
  const std::vector<Record> records = recorder.Records();
  for (size_t r = first; r < records.size(); ++r) {
    if (IsBucket(records[r])) bytes += records[r].sent_bytes;
  }
  return bytes;
}

TEST(FrozenTest, FreezingAndThawingGivesTheBitsOfOneRankAndSendsLessMeanwhile) {
  for (const OptimizerCase& optimizer_case : kOptimizers) {
    SCOPED_TRACE(optimizer_case.name);
    const auto expected = TrainOneRank(2, optimizer_case.make, IsFrozenIn);
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      const auto optimizer = optimizer_case.make(parameters);
      BucketedDDP ddp(module, comm, {.bucket_bytes = 600});
      for (int step = 0; step < kSteps; ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        SetFrozen(parameters, IsFrozenIn(step));
        const size_t before = comm.recorder().Records().size();
        ddp.ZeroGrad();
        ddp.BeginForward();
        LossOfStep(parameters, step, comm.rank()).backward();
        ddp.FinishGradientSync();
        optimizer->Step();
        EXPECT_TRUE(EqualBits(parameters, expected[step]));
        EXPECT_EQ(
            EqualBits({parameters[0]}, {expected[step ? step - 1 : 0][0]}),
            IsFrozenIn(step) || step == 0)
            << "a frozen one stays as it is, without weight decay";
        EXPECT_EQ(parameters[0].grad().defined(), !IsFrozenIn(step));
        EXPECT_EQ(ddp.parameters().size(), IsFrozenIn(step) ? 4 : 6);
        const auto all = static_cast<int64_t>(
            4 * (8 * 16 + 16 + 16 * 16 + 16 + 16 * 4 + 16));
        EXPECT_EQ(BucketBytes(comm.recorder(), before),
                  all - (IsFrozenIn(step) ? 4 * (8 * 16 + 16) : 0));
      }
      int num_compared = 0;
      for (const Record& record : comm.recorder().Records()) {
        num_compared += record.label == "module differs";
      }
      EXPECT_EQ(num_compared, 3) << "when made, frozen and thawed";
    });
  }
}

TEST(FrozenTest, WhatWasFrozenFromTheStartMayBeThawed) {
  const auto is_frozen = [](int step) { return step < 3; };
  const MakeOptimizer& make = kOptimizers[0].make;
  const auto expected = TrainOneRank(3, make, is_frozen);
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    SetFrozen(parameters, true);
    const auto optimizer = make(parameters);
    BucketedDDP ddp(module, comm);
    for (int step = 0; step < kSteps; ++step) {
      SetFrozen(parameters, is_frozen(step));
      ddp.ZeroGrad();
      ddp.BeginForward();
      LossOfStep(parameters, step, comm.rank()).backward();
      ddp.FinishGradientSync();
      optimizer->Step();
      EXPECT_TRUE(EqualBits(parameters, expected[step])) << step;
    }
  });
}

TEST(FrozenTest, ChangesUnderNoSyncDropTheGradientAndKeepTheOthers) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    for (bool is_frozen : {false, true}) {
      const NoSync quiet(ddp);
      SetFrozen(parameters, is_frozen);
      ddp.BeginForward();
      LossOfStep(parameters, is_frozen, comm.rank()).backward();
      EXPECT_EQ(parameters[0].grad().defined(), !is_frozen);
    }
    ddp.BeginForward();
    LossOfStep(parameters, 2, comm.rank()).backward();
    ddp.FinishGradientSync();
    const Tensors gradients = GradientsOf(parameters);
    Module reference;
    const Tensors one = AddLayers(reference, 0);
    const Tensors expected = MicroStepGradients(one, 2, [&](int rank) {
      return LossOfStep(one, 0, rank) + LossOfStep(one, 1, rank) +
             LossOfStep(one, 2, rank);
    });
    EXPECT_FALSE(gradients[0].defined());
    EXPECT_FALSE(gradients[1].defined());
    EXPECT_LT(MaxDifference({gradients.begin() + 2, gradients.end()},
                            {expected.begin() + 2, expected.end()}),
              1e-6);
  });
}

TEST(FrozenTest, OtherParametersOnEachRankAreAnErrorWithBothSides) {
  std::vector<std::string> texts(2);
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    Module module;
    Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    const auto own = static_cast<size_t>(comm.rank());
    parameters[own].set_requires_grad(false);
    for (int time = 0; time < 2; ++time) {
      texts[own] = ErrorOf<InvalidArgument>([&] { ddp.BeginForward(); });
    }
    parameters[own].set_requires_grad(true);
    ddp.BeginForward();
    LossOfStep(parameters, 0, comm.rank()).backward();
    ddp.FinishGradientSync();
  });
  EXPECT_THAT(
      texts, Each(AllOf(HasSubstr("rank 0 has parameter 'w0' [8, 16] Float "
                                  "frozen"),
                        HasSubstr("rank 1 has parameter 'w0' [8, 16] Float"))));
}

TEST(FrozenTest, AParameterFrozenOnOneRankOnlyIsAnErrorOnEveryRank) {
  std::vector<std::string> texts(3, "no error");
  collectives::RunRanksToAFailure({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    const auto step = [&](int number) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      LossOfStep(parameters, number, comm.rank()).backward();
      ddp.FinishGradientSync();
    };
    for (int number = 0; number < 3; ++number) step(number);
    SetFrozen(parameters, comm.rank() == 1);
    texts[static_cast<size_t>(comm.rank())] = ErrorOf<Error>([&] { step(3); });
  });
  EXPECT_THAT(texts, Each(Ne("no error")));
}

TEST(FrozenTest, FreezingAllIsAnErrorAndThawingMendsIt) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  const Tensors expected = MicroStepGradients(
      one, 2, [&](int rank) { return LossOfStep(one, 0, rank); });
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    Module module;
    Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    for (at::Tensor& p : parameters) p.set_requires_grad(false);
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { ddp.BeginForward(); }),
                HasSubstr("no parameter that requires a gradient"));
    for (at::Tensor& p : parameters) p.set_requires_grad(true);
    ddp.BeginForward();
    LossOfStep(parameters, 0, comm.rank()).backward();
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
  });
}

TEST(FrozenTest, AGradientOfAStepBeforeIsNoUseInThisOne) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    const at::Tensor own = module.register_parameter("own", at::ones({3}));
    BucketedDDP ddp(module, comm, {.find_unused_parameters = true});
    ddp.BeginForward();
    (LayersLoss(parameters, InputOf(comm.rank())) + own.sum()).backward();
    ddp.FinishGradientSync();
    own.mutable_grad().zero_();  // in place: it stays defined
    at::Tensor(parameters[0]).set_requires_grad(false);
    ddp.BeginForward();  // plans anew
    LayersLoss(parameters, InputOf(comm.rank())).backward();
    ddp.FinishGradientSync();
    EXPECT_FALSE(own.grad().defined());
  });
}

TEST(FrozenTest, OnceAStepIsOpenItIsAnErrorAndEveryRankRecovers) {
  RunRanksHere({.ranks = 2, .timeout = std::chrono::minutes(1)},
               [](Communicator& comm) {
                 Module module;
                 const Tensors parameters = AddLayers(module, 0);
                 at::Tensor first = parameters[0];
                 BucketedDDP ddp(module, comm);
                 ASSERT_TRUE(ddp.Join(2));
                 first.set_requires_grad(false);
                 if (comm.rank() == 0) {
                   EXPECT_THAT(ErrorOf<Error>([&] { ddp.BeginForward(); }),
                               HasSubstr("has changed since this step began"));
                   ddp.Reset("frozen too late");
                 } else {
                   ddp.Reset("cannot read a batch");
                 }
                 ASSERT_TRUE(ddp.Join(1));
                 ddp.BeginForward();
                 LayersLoss(parameters, InputOf(comm.rank())).backward();
                 ddp.FinishGradientSync();
                 EXPECT_FALSE(first.grad().defined());
                 EXPECT_TRUE(parameters[1].grad().defined());
               });
}

}  // namespace
}  // namespace trainsys
