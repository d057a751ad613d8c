// Parameters that a step leaves out: on one rank, on some, on all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/exact_loss.h"
#include "tests/ddp/layers.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::AsBuffer;
using collectives::Communicator;
using collectives::Error;
using collectives::ReduceOp;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::nn::Module;

constexpr int kRanks = 3;
constexpr std::chrono::minutes kTimeout{1};
// Two parameters of AddExact each, 64 bytes a parameter.
constexpr int64_t kBucketOfTwo = 128;

// Which parameters a rank leaves out.
using LeftOut = std::function<std::set<size_t>(int rank)>;

const LeftOut kNone = [](int) { return std::set<size_t>{}; };
const LeftOut kSecondOnRank1 = [](int rank) {
  return rank == 1 ? std::set<size_t>{1} : std::set<size_t>{};
};
const LeftOut kSecondEverywhere = [](int) { return std::set<size_t>{1}; };
const LeftOut kManyOnSome = [](int rank) {
  return rank == 0 ? std::set<size_t>{0, 3} : std::set<size_t>{1, 3};
};

at::Tensor LossWithout(const Tensors& parameters, const std::set<size_t>& out,
                       int rank, int step) {
  Tensors used;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!out.contains(p)) used.push_back(parameters[p]);
  }
  return ExactLoss(used, rank, step);
}

Tensors Expected(const LeftOut& left_out, int step) {
  Module module;
  const Tensors one = AddExact(module);
  return MicroStepGradients(one, kRanks, [&](int rank) {
    return LossWithout(one, left_out(rank), rank, step);
  });
}

void OnRanks(const std::function<void(Communicator&)>& fn) {
  RunRanksHere({.ranks = kRanks, .timeout = kTimeout}, fn);
}

// The text of what FinishGradientSync throws, or "no error".
std::string Step(const Tensors& parameters, BucketedDDP& ddp,
                 const std::set<size_t>& left_out, int rank, int step) {
  ddp.BeginForward();
  LossWithout(parameters, left_out, rank, step).backward();
  return ErrorOf<Error>([&] { ddp.FinishGradientSync(); });
}

TEST(UnusedParametersTest, WithDetectionTheyContributeZeros) {
  // In the first step, in later ones, and different ones each time.
  const std::vector<LeftOut> steps{kSecondOnRank1, kNone,          kManyOnSome,
                                   kManyOnSome,    kSecondOnRank1, kNone};
  OnRanks([&](Communicator& comm) {
    for (const int64_t bucket_bytes : {int64_t{1}, kBucketOfTwo}) {
      Module module;
      const Tensors parameters = AddExact(module);
      BucketedDDP ddp(
          module, comm,
          {.bucket_bytes = bucket_bytes, .find_unused_parameters = true});
      for (size_t s = 0; s < steps.size(); ++s) {
        const int step = static_cast<int>(s);
        ddp.ZeroGrad();
        EXPECT_EQ(
            Step(parameters, ddp, steps[s](comm.rank()), comm.rank(), step),
            "no error");
        EXPECT_TRUE(
            EqualBits(GradientsOf(parameters), Expected(steps[s], step)))
            << "step " << s;
      }
    }
  });
}

TEST(UnusedParametersTest, ABucketWithOneThatNobodyUsesIsSentAllTheSame) {
  OnRanks([](Communicator& comm) {
    Module module;
    const Tensors parameters = AddExact(module);
    BucketedDDP ddp(
        module, comm,
        {.bucket_bytes = kBucketOfTwo, .find_unused_parameters = true});
    ASSERT_EQ(ddp.buckets().size(), 2);
    for (int step = 0; step < 3; ++step) {
      ddp.ZeroGrad();
      EXPECT_EQ(Step(parameters, ddp, {1}, comm.rank(), step), "no error");
      EXPECT_FALSE(parameters[1].grad().defined());
      EXPECT_TRUE(EqualBits(GradientsOf(parameters),
                            Expected(kSecondEverywhere, step)));
    }
  });
}

TEST(UnusedParametersTest, WhatNobodyUsesLosesAnOlderGradientToo) {
  OnRanks([](Communicator& comm) {
    Module module;
    const Tensors parameters = AddExact(module);
    BucketedDDP ddp(module, comm,
                    {.bucket_bytes = 1, .find_unused_parameters = true});
    EXPECT_EQ(Step(parameters, ddp, {}, comm.rank(), 0), "no error");
    EXPECT_TRUE(parameters[1].grad().defined());
    EXPECT_EQ(Step(parameters, ddp, {1}, comm.rank(), 1), "no error");
    EXPECT_FALSE(parameters[1].grad().defined());
    ddp.ZeroGrad();
    EXPECT_EQ(Step(parameters, ddp, {}, comm.rank(), 2), "no error");
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), Expected(kNone, 2)));
  });
}

TEST(UnusedParametersTest, UseInAnEarlierMicroStepCounts) {
  for (const bool detects : {false, true}) {
    OnRanks([detects](Communicator& comm) {
      Module module;
      const Tensors parameters = AddExact(module);
      BucketedDDP ddp(
          module, comm,
          {.bucket_bytes = kBucketOfTwo, .find_unused_parameters = detects});
      {
        const NoSync quiet(ddp);
        ddp.BeginForward();
        LossWithout(parameters, {0, 2, 3}, comm.rank(), 0).backward();
      }
      EXPECT_EQ(Step(parameters, ddp, {1}, comm.rank(), 0), "no error");
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), Expected(kNone, 0)));
    });
  }
}

TEST(UnusedParametersTest, ATiedOneHasOnePlaceOneHookAndTheSumOfItsUses) {
  const auto add = [](Module& module) {
    Tensors parameters = AddExact(module);
    parameters.push_back(module.register_parameter("tied", parameters[1]));
    return parameters;
  };
  Module reference;
  const Tensors one = add(reference);
  const Tensors distinct(one.begin(), one.end() - 1);
  const Tensors expected = MicroStepGradients(
      distinct, kRanks, [&](int rank) { return ExactLoss(one, rank); });
  OnRanks([&](Communicator& comm) {
    Module module;
    const Tensors parameters = add(module);
    BucketedDDP ddp(module, comm,
                    {.bucket_bytes = 1, .find_unused_parameters = true});
    EXPECT_EQ(ddp.buckets().size(), distinct.size());
    int calls = 0;
    const GradientHook hook(parameters[1], [&] { ++calls; });
    EXPECT_EQ(Step(parameters, ddp, {}, comm.rank(), 0), "no error");
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(EqualBits(GradientsOf(ddp.parameters()), expected));
    // By either name alone it is used; by none it is not.
    EXPECT_EQ(Step(parameters, ddp, {1}, comm.rank(), 1), "no error");
    EXPECT_TRUE(parameters[1].grad().defined());
    EXPECT_EQ(Step(parameters, ddp, {1, 4}, comm.rank(), 2), "no error");
    EXPECT_FALSE(parameters[1].grad().defined());
  });
}

TEST(UnusedParametersTest, WithoutDetectionEveryRankIsToldWhichAndWhere) {
  struct Case {
    LeftOut left_out;
    std::vector<std::string> names_and_ranks;
  };
  const std::vector<Case> cases{
      {kSecondOnRank1, {"'second' on rank 1;"}},
      {kSecondEverywhere, {"'second' on all ranks;"}},
      {kManyOnSome,
       {"'first' on rank 0,", "'second' on ranks 1 2,",
        "'fourth' on all ranks;"}}};
  for (const Case& c : cases) {
    std::vector<std::string> texts(kRanks);
    OnRanks([&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddExact(module);
      BucketedDDP ddp(module, comm, {.bucket_bytes = kBucketOfTwo});
      for (int step = 0; step < 4; ++step) {  // every other one goes wrong
        const bool is_wrong = step % 2 == 0;
        const std::string text =
            Step(parameters, ddp,
                 is_wrong ? c.left_out(comm.rank()) : std::set<size_t>{},
                 comm.rank(), step);
        if (is_wrong) {
          EXPECT_THAT(text, HasSubstr("step " + std::to_string(step)));
          texts[static_cast<size_t>(comm.rank())] = text;
          for (const at::Tensor& p : parameters) {
            EXPECT_FALSE(p.grad().defined());
          }
        } else {
          EXPECT_EQ(text, "no error");
          EXPECT_TRUE(
              EqualBits(GradientsOf(parameters), Expected(kNone, step)));
          ddp.ZeroGrad();
        }
      }
    });
    for (const std::string& part : c.names_and_ranks) {
      EXPECT_THAT(texts, Each(HasSubstr(part)));
    }
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("find_unused_parameters"),
                                  Not(HasSubstr("'third'")))));
  }
}

TEST(UnusedParametersTest, ACollectiveBeforeTheErrorIsFoundMatchesAsAlways) {
  OnRanks([](Communicator& comm) {
    Module module;
    const Tensors parameters = AddExact(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    ddp.BeginForward();
    LossWithout(parameters, kSecondOnRank1(comm.rank()), comm.rank(), 0)
        .backward();
    std::vector<float> loss{1.0f + static_cast<float>(comm.rank())};
    comm.AllReduce(AsBuffer(std::span(loss)), ReduceOp::kSum, "loss");
    EXPECT_EQ(loss[0], 6);
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.FinishGradientSync(); }),
                HasSubstr("'second' on rank 1"));
  });
}

}  // namespace
}  // namespace trainsys
