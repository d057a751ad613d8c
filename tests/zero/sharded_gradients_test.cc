// Steps over gradients of which each rank keeps its shard only: what else
// happens between and inside them.
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

class ShardedGradientsTest : public testing::TestWithParam<Way> {};

std::vector<Way> WaysOfSharded() {
  std::vector<Way> ways;
  for (const Way& way : ShardedWays()) {
    if (way.sharding == GradientSharding::kNone) continue;
    if (way.partition != Partition::kBalanced) ways.push_back(way);
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Ways, ShardedGradientsTest,
                         testing::ValuesIn(WaysOfSharded()),
                         [](const auto& info) { return Name(info.param); });

// ---- Between steps

TEST_P(ShardedGradientsTest, EvaluationBetweenStepsChangesNothing) {
  const Tensors expected = LayersTrained(3, 3);
  OnRanks(3, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 3; ++step) {
      rank.Step(step);
      {
        const at::NoGradGuard no_grad;
        rank.ddp.BeginForward();
        rank.Loss(step);
      }
      rank.ddp.ZeroGrad();
      rank.ddp.BeginForward();  // with a graph, and no backward
      rank.Loss(step);
    }
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

TEST_P(ShardedGradientsTest, LoadedParametersAreTakenUp) {
  Module reference;
  const Tensors start = AddLayers(reference, 7);
  std::ostringstream stream;
  torch::serialize::OutputArchive archive;
  reference.save(archive);
  archive.save_to(stream);
  const std::string saved = stream.str();
  OnRanks(2, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam(), SmallBuckets(), SGDOptions{.lr = 0.125});
    rank.Step(0);
    std::istringstream in(saved);
    torch::serialize::InputArchive from;
    from.load_from(in);
    rank.module.load(from);
    EXPECT_TRUE(EqualBits(rank.parameters, start));
    rank.Step(1);
    Module own;
    Tensors expected = AddLayers(own, 7);
    const Tensors gradients = MicroStepGradients(expected, 2, [&](int r) {
      return LayersLoss(expected, InputOf(100 + r));
    });
    FlatOptimizer one(expected, SGDOptions{.lr = 0.125});
    for (size_t p = 0; p < expected.size(); ++p) {
      expected[p].mutable_grad() = gradients[p];
    }
    one.Step();
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

TEST_P(ShardedGradientsTest, OtherDataAfterJoinIsTakenUpToo) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam(), SmallBuckets(), SGDOptions{.lr = 0.125});
    ASSERT_TRUE(rank.ddp.Join(1));
    for (at::Tensor& p : rank.parameters) p.set_data(p.detach().clone());
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    rank.optimizer->Step();
    EXPECT_TRUE(EqualBits(rank.parameters,
                          LayersTrained(2, 1, SGDOptions{.lr = 0.125})));
  });
}

// Frozen ones keep their values and their moments.
TEST_P(ShardedGradientsTest, ParametersMayBeFrozenAndThawedBetweenSteps) {
  Module reference;
  Tensors expected = AddLayers(reference, 0);
  FlatOptimizer one(expected, kAdamW);
  const auto is_frozen = [](int64_t step) { return step == 1 || step == 2; };
  for (int64_t step = 0; step < 5; ++step) {
    const Tensors gradients = MicroStepGradients(expected, 3, [&](int rank) {
      return LayersLoss(expected, InputOf(static_cast<int>(100 * step + rank)));
    });
    for (size_t p = 0; p < expected.size(); ++p) {
      if (p < 3 && is_frozen(step)) continue;
      expected[p].mutable_grad() = gradients[p];
    }
    one.Step();
  }
  OnRanks(3, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 5; ++step) {
      for (size_t p = 0; p < 3; ++p) {
        rank.parameters[p].requires_grad_(!is_frozen(step));
      }
      rank.Step(step);
    }
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

TEST_P(ShardedGradientsTest, ThawingWhatIsInNoShardIsRefusedAndCanBeUndone) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    parameters[2].requires_grad_(false);
    BucketedDDP ddp(module, comm, WithWay(SmallBuckets(), GetParam()));
    AnyOptimizer optimizer(GetParam(), ddp, comm, {{ddp.planned(), kAdamW}});
    const auto step = [&] {
      optimizer->ZeroGrad();
      ddp.BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      ddp.FinishGradientSync();
      optimizer->Step();
    };
    step();
    const int64_t bytes = ddp.GradientBytes();
    parameters[2].requires_grad_(true);
    EXPECT_THAT(ErrorOf<InvalidArgument>(step),
                HasSubstr("parameter 'w1' is in no shard"));
    ddp.ZeroGrad();
    EXPECT_EQ(ddp.GradientBytes(), bytes);
    parameters[2].requires_grad_(false);
    step();
    EXPECT_TRUE(CheckInSync(parameters, comm).empty());
  });
}

TEST_P(ShardedGradientsTest, GradientsAreShownWhereTheyAreWhollyOwned) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam(), SmallBuckets(), SGDOptions{.lr = 0});
    Module own_module;
    const Tensors one = AddLayers(own_module, 0);
    const Tensors averages = MicroStepGradients(
        one, 2, [&](int r) { return LayersLoss(one, InputOf(r)); });
    rank.optimizer->ZeroGrad();
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    const ShardPlan& plan = rank.ddp.shard_plan();
    const Shard& own = plan.shards[static_cast<size_t>(comm.rank())];
    size_t num_shown = 0;
    for (size_t p = 0; p < rank.parameters.size(); ++p) {
      const bool is_own = plan.offsets[p] >= own.begin &&
                          plan.offsets[p] + plan.tensor_bytes[p] <= own.end();
      EXPECT_EQ(rank.parameters[p].grad().defined(), is_own) << p;
      if (!is_own) continue;
      ++num_shown;
      EXPECT_TRUE(EqualBits({rank.parameters[p].grad()}, {averages[p]})) << p;
    }
    EXPECT_GT(num_shown, 0);
    EXPECT_LT(num_shown, rank.parameters.size());
  });
}

TEST_P(ShardedGradientsTest, OneRankShowsAllGradientsAndEqualsNoRanks) {
  const Tensors expected = LayersTrained(1, 3);
  OnRanks(1, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 3; ++step) rank.Step(step);
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
    for (const at::Tensor& p : rank.parameters) {
      EXPECT_TRUE(p.grad().defined());
    }
  });
}

// Also where no bucket ever fills up, and where each parameter is one.
TEST_P(ShardedGradientsTest, SixteenRanksMissNoGradient) {
  const Tensors expected = LayersTrained(16, 2);
  for (const int64_t bucket_bytes : {1, 1 << 20}) {
    OnRanks(16, [&](Communicator& comm) {
      LayersRank rank(comm, GetParam(), {.bucket_bytes = bucket_bytes});
      for (int64_t step = 0; step < 2; ++step) rank.Step(step);
      EXPECT_TRUE(EqualBits(rank.parameters, expected));
    });
  }
}

// ---- Sizes

// Gradients are rank + 1 in each element; 0.125 is exact.
void ExpectTrains(Communicator& comm, const Way& way,
                  const std::vector<std::vector<int64_t>>& shapes) {
  Module module;
  Tensors parameters;
  for (const auto& shape : shapes) {
    parameters.push_back(module.register_parameter(
        "p" + std::to_string(parameters.size()), at::full(shape, 4.0f)));
  }
  BucketedDDP ddp(module, comm, WithWay({.bucket_bytes = 1}, way));
  AnyOptimizer optimizer(way, ddp, comm,
                         {{ddp.planned(), SGDOptions{.lr = 0.125}}});
  for (int step = 1; step <= 2; ++step) {
    optimizer->ZeroGrad();
    ddp.BeginForward();
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& p : parameters) loss = loss + p.sum();
    (loss * (comm.rank() + 1.0)).backward();
    ddp.FinishGradientSync();
    optimizer->Step();
    const double mean = (comm.ranks() + 1) / 2.0;
    for (size_t p = 0; p < shapes.size(); ++p) {
      EXPECT_EQ(parameters[p].sizes(), at::IntArrayRef(shapes[p]));
      EXPECT_TRUE(EqualBits(
          {parameters[p]},
          {at::full(shapes[p], static_cast<float>(4 - step * mean / 8))}));
    }
  }
}

TEST_P(ShardedGradientsTest, FewerElementsThanRanksAndEmptyParametersTrain) {
  for (const int ranks : {1, 2, 3, 8}) {
    OnRanks(ranks, [](Communicator& comm) {
      ExpectTrains(comm, GetParam(), {{3}});
      ExpectTrains(comm, GetParam(), {{1}, {1}, {1}});
      ExpectTrains(comm, GetParam(), {{16}, {4}, {0, 4}});
      ExpectTrains(comm, GetParam(), {{0, 8}, {5}, {0}, {33}});
      ExpectTrains(comm, GetParam(), {{}, {5}, {7}, {11}});
    });
  }
}

TEST_P(ShardedGradientsTest, EmptyBucketsGoThroughEveryHook) {
  for (const CommHook& hook :
       {CompressToBF16(), CompressToF16(), GatherBF16()}) {
    OnRanks(3, [&](Communicator& comm) {
      Module module;
      const at::Tensor w = module.register_parameter("w", at::full({16}, 1.0f));
      const at::Tensor empty =
          module.register_parameter("empty", at::zeros({0, 4}));
      BucketedDDP ddp(
          module, comm,
          WithWay({.bucket_bytes = 1, .comm_hook = hook}, GetParam()));
      AnyOptimizer optimizer(GetParam(), ddp, comm,
                             {{ddp.planned(), SGDOptions{.lr = 0.5}}});
      for (int step = 0; step < 2; ++step) {
        optimizer->ZeroGrad();
        ddp.BeginForward();
        ((w * (comm.rank() + 1)).sum() + empty.sum()).backward();
        ddp.FinishGradientSync();
        optimizer->Step();
      }
      // Gradients of 1, 2 and 3 have the mean 2, in 16 bits too.
      EXPECT_TRUE(EqualBits({w.detach()}, {at::full({16}, -1.0f)}));
    });
  }
}

TEST_P(ShardedGradientsTest, StateIsCutHoweverRanksDivideTheElements) {
  OnRanks(3, [](Communicator& comm) {
    Module module;
    for (int p = 0; p < 30; ++p) {
      module.register_parameter("p" + std::to_string(p), at::ones({50}));
    }
    BucketedDDP ddp(module, comm, WithWay(SmallBuckets(), GetParam()));
    AnyOptimizer optimizer(GetParam(), ddp, comm, {{ddp.planned(), kAdamW}});
    EXPECT_EQ(optimizer->StateBytes(),
              2 * 10 * 64 * 4);  // 50 elements lie in 64
  });
}

// ---- Inside a step

TEST_P(ShardedGradientsTest, AStepThatARankGivesUpLeavesNoTrace) {
  if (IsInBackward(GetParam())) return;  // some parameters are stepped then
  const Tensors expected = LayersTrained(3, 3);
  OnRanks(3, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 3; ++step) {
      for (const bool is_halfway : {false, true}) {
        rank.optimizer->ZeroGrad();
        rank.ddp.BeginForward();
        const at::Tensor loss = rank.Loss(50 + step);
        try {
          if (comm.rank() == step && is_halfway) {
            rank.parameters[2].sum().backward();
            throw std::runtime_error("no luck");
          }
          if (comm.rank() == step) throw std::runtime_error("no luck");
          loss.backward();
          rank.ddp.FinishGradientSync();
          ADD_FAILURE() << "rank " << comm.rank() << " was not told";
        } catch (const PeerFailed& e) {
          EXPECT_THAT(e.what(), HasSubstr("no luck"));
        } catch (const std::runtime_error& e) {
          EXPECT_EQ(comm.rank(), step) << e.what();
          rank.ddp.Reset(e.what());
        }
      }
      rank.Step(step);
    }
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// What its collectives were to do afterwards would find it gone.
TEST(WrapperTest, GoneInTheMiddleOfAStepItLeavesNothingBehind) {
  for (const GradientSharding sharding : kShardings) {
    OnRanks(3, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      auto ddp = std::make_unique<BucketedDDP>(
          module, comm, WithWay(SmallBuckets(), AfterBackward(sharding)));
      ddp->BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      ddp.reset();
      for (int i = 0; i < 3; ++i) comm.Barrier("what is left runs now");
      const Tensors before = Snapshot(parameters);
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      EXPECT_TRUE(EqualBits(parameters, before));
    });
  }
}

TEST_P(ShardedGradientsTest, WithCreateGraphItIsRefused) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    rank.ddp.BeginForward();
    const at::Tensor loss = rank.Loss(0);
    const std::string text = ErrorOf<Error>([&] {
      loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    });
    EXPECT_THAT(text, HasSubstr("create_graph"));
    rank.ddp.Reset(text);
    rank.Step(1);
    EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  });
}

TEST_P(ShardedGradientsTest,
       AnUnusedParameterIsAnErrorOnAllRanksOrStaysAsItIs) {
  for (const bool is_found : {false, true}) {
    if (is_found && IsInBackward(GetParam())) continue;
    OnRanks(2, [&](Communicator& comm) {
      BucketedDDPOptions options = SmallBuckets();
      options.find_unused_parameters = is_found;
      LayersRank rank(comm, GetParam(), options);
      const Tensors before = Snapshot(rank.parameters);
      rank.ddp.BeginForward();
      rank.parameters[2].sum().backward();
      if (!is_found) {
        EXPECT_THAT(ErrorOf<Error>([&] { rank.ddp.FinishGradientSync(); }),
                    HasSubstr("'w0'"));
        return;
      }
      rank.ddp.FinishGradientSync();
      rank.optimizer->Step();
      for (size_t p = 0; p < before.size(); ++p) {
        EXPECT_EQ(EqualBits({rank.parameters[p]}, {before[p]}), p != 2);
      }
    });
  }
}

TEST_P(ShardedGradientsTest, GradientsComputedElsewhereAreReducedNow) {
  const Tensors expected = LayersTrained(2, 3);
  OnRanks(2, [&](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    for (int64_t step = 0; step < 3; ++step) {
      rank.optimizer->ZeroGrad();
      const auto gradients =
          torch::autograd::grad({rank.Loss(step)}, rank.parameters);
      for (size_t p = 0; p < gradients.size(); ++p) {
        rank.parameters[p].mutable_grad() = gradients[p];
      }
      rank.ddp.ReduceNow();
      rank.optimizer->Step();
    }
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// As of one rank that has only what is left.
TEST_P(ShardedGradientsTest, RanksWithoutABatchTakePart) {
  OnRanks(3, [](Communicator& comm) {
    LayersRank rank(comm, GetParam(), SmallBuckets(), SGDOptions{.lr = 0.125});
    Module own;
    const Tensors expected = AddLayers(own, 0);
    FlatOptimizer one(expected, SGDOptions{.lr = 0.125});
    const int64_t mine = comm.rank() + 1;
    int64_t step = 0;
    for (; rank.ddp.Join(mine - step); ++step) {
      if (step < mine) rank.Backward(step);
      rank.ddp.FinishGradientSync();
      rank.optimizer->Step();
      rank.ddp.ZeroGrad();
      for (const at::Tensor& p : expected) p.mutable_grad().reset();
      for (int r = static_cast<int>(step); r < 3; ++r) {
        LayersLoss(expected, InputOf(static_cast<int>(100 * step + r)))
            .backward();
      }
      for (const at::Tensor& p : expected) p.grad().div_(3 - step);
      one.Step();
    }
    EXPECT_EQ(step, 3);
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// It hides them, for a backward that does not come.
TEST_P(ShardedGradientsTest, AForwardBeforeTheStepChangesNothing) {
  if (GetParam().sharding == GradientSharding::kReduced) return;  // refused
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    rank.ddp.BeginForward();
    rank.Loss(1);
    rank.optimizer->Step();
    EXPECT_TRUE(EqualBits(rank.parameters, LayersTrained(2, 1)));
  });
}

TEST_P(ShardedGradientsTest, AGradientOfAnotherShapeIsRefusedByTheStep) {
  if (IsInBackward(GetParam())) return;  // it is used before it can be set
  OnRanks(1, [](Communicator& comm) {
    LayersRank rank(comm, GetParam());
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    rank.parameters[0].mutable_grad() = at::ones({2});
    const Tensors before = Snapshot(rank.parameters);
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { rank.optimizer->Step(); }),
                HasSubstr("expected the same shape"));
    EXPECT_TRUE(EqualBits(rank.parameters, before));
  });
}

}  // namespace
}  // namespace trainsys
