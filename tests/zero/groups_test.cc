// Parameter groups with options of their own, that change between steps.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/layers_rank.h"
#include "trainsys/optim/lr_schedule.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::InvalidArgument;
using collectives::RankFunction;
using collectives::RunRanksHere;
using ::testing::HasSubstr;
using torch::nn::Module;

// Interleaved with the order of registration, which is w0, b0, w1, b1, w2, b2.
std::vector<ParameterGroup> GroupsOf(const Tensors& p) {
  return {{{p[1], p[4], p[3]},
           AdamWOptions{.lr = 0.02, .beta1 = 0.8, .weight_decay = 0.1}},
          {{p[5], p[0]}, AdamWOptions{.lr = 0.01, .weight_decay = 0}},
          {{p[2]}, SGDOptions{.lr = 0.05, .momentum = 0.5}}};
}

// What a scheduler does before each step.
void SetLrs(std::vector<ParameterGroup>& groups, int64_t step) {
  const WarmupCosine schedule{.warmup_steps = 2, .total_steps = 5};
  const double lrs[] = {0.02, 0.01, 0.05};
  for (size_t g = 0; g < groups.size(); ++g) {
    SetLr(groups[g].options, lrs[g] * schedule.Factor(step));
  }
}

// Reference A, with an optimizer of its own for each group.
Tensors Expected(int ranks, int64_t steps) {
  Module module;
  Tensors parameters = AddLayers(module, 0);
  std::vector<ParameterGroup> groups = GroupsOf(parameters);
  std::deque<FlatOptimizer> optimizers;
  for (const ParameterGroup& group : groups) {
    optimizers.emplace_back(std::vector<ParameterGroup>{group});
  }
  for (int64_t step = 0; step < steps; ++step) {
    SetLrs(groups, step);
    for (size_t g = 0; g < groups.size(); ++g) {
      optimizers[g].groups()[0].options = groups[g].options;
    }
    const Tensors gradients =
        MicroStepGradients(parameters, ranks, [&](int rank) {
          return LayersLoss(parameters,
                            InputOf(static_cast<int>(100 * step + rank)));
        });
    for (size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = gradients[p];
    }
    for (FlatOptimizer& optimizer : optimizers) optimizer.Step();
  }
  return parameters;
}

class GroupsTest : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, GroupsTest, testing::ValuesIn(ShardedWays()),
                         [](const auto& info) { return Name(info.param); });

// On 9 ranks some own nothing, and most nothing of some group.
TEST_P(GroupsTest, EachHasItsOptionsAndItsChangingLrWhoeverOwnsIt) {
  for (const int ranks : {1, 2, 3, 9}) {
    const Tensors expected = Expected(ranks, 5);
    OnRanks(ranks, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm, WithWay(SmallBuckets(), GetParam()));
      AnyOptimizer optimizer(GetParam(), ddp, comm, GroupsOf(parameters));
      for (int64_t step = 0; step < 5; ++step) {
        SetLrs(optimizer.groups(), step);
        optimizer->ZeroGrad();
        ddp.BeginForward();
        LayersLoss(parameters,
                   InputOf(static_cast<int>(100 * step + comm.rank())))
            .backward();
        ddp.FinishGradientSync();
        optimizer->Step();
      }
      EXPECT_TRUE(EqualBits(parameters, expected)) << ranks << " ranks";
    });
  }
}

TEST_P(GroupsTest, MustNameEveryTrainedParameterOnceAndNothingElse) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Tensors p = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, WithWay(SmallBuckets(), GetParam()));
    const at::Tensor foreign = at::ones({3}).set_requires_grad(true);
    const Tensors rest(p.begin() + 1, p.end());
    const std::vector<std::vector<Tensors>> wrong{
        {rest},                     // one is missing
        {{p[0]}, {p[0]}, rest},     // one is in two groups
        {{p[0], p[0]}, rest},       // and twice in one
        {{p[0]}, rest, {foreign}},  // one is nobody's
        {{p[0]}, {p[1], p[2], p[3], foreign}}};
    for (size_t i = 0; i < wrong.size(); ++i) {
      std::vector<ParameterGroup> groups;
      for (const Tensors& tensors : wrong[i]) {
        groups.push_back({tensors, kAdamW});
      }
      EXPECT_THROW(AnyOptimizer(GetParam(), ddp, comm, groups), InvalidArgument)
          << "case " << i;
    }
    // Nothing was taken: the right ones still work, empty groups too.
    AnyOptimizer optimizer(GetParam(), ddp, comm,
                           {{{p[0]}, kAdamW}, {{}, kAdamW}, {rest, kAdamW}});
    ddp.BeginForward();
    LayersLoss(p, InputOf(comm.rank())).backward();
    ddp.FinishGradientSync();
    optimizer->Step();
  });
}

TEST_P(GroupsTest, OptionsOfAnotherKindAreRefusedAndNothingIsWritten) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    rank.Step(0);
    Tensors before = Snapshot(rank.parameters);
    for (const OptimizerOptions& other :
         {OptimizerOptions(AdamOptions{}), OptimizerOptions(SGDOptions{}),
          OptimizerOptions(SGDOptions{.momentum = 0.5})}) {
      rank.optimizer.groups()[0].options = other;
      const std::string text = ErrorOf<InvalidArgument>([&] { rank.Step(1); });
      EXPECT_THAT(text, HasSubstr("group 0 is " + NameOf(other)));
      EXPECT_THAT(text, HasSubstr("expected as at construction: AdamW"));
      EXPECT_TRUE(EqualBits(rank.parameters, before));
      rank.ddp.Reset(text);
    }
    rank.optimizer.groups()[0].options = AdamWOptions{.lr = -1};
    EXPECT_THROW(rank.Step(1), InvalidArgument);
    rank.ddp.Reset("lr");
    rank.optimizer.groups()[0].options = kAdamW;
    rank.Step(1);
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 2)));
  });
}

TEST(GroupsTest, CannotBeAddedOrTakenAway) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, AfterBackward(GradientSharding::kNone));
    rank.optimizer.groups().clear();
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { rank.Step(0); }),
                HasSubstr("0 parameter groups now"));
  });
}

TEST(GroupsTest, MomentumCannotComeOrGo) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, AfterBackward(GradientSharding::kNone),
                    SmallBuckets(), SGDOptions{.momentum = 0.5});
    rank.Step(0);
    rank.optimizer.groups()[0].options = SGDOptions{};
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { rank.Step(1); }),
                HasSubstr("SGD with 0 moments now"));
  });
}

}  // namespace
}  // namespace trainsys
