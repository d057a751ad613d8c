// Ranks with different numbers of batches.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
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
using collectives::Error;
using collectives::PeerFailed;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using torch::nn::Module;

// What each rank has.
using Batches = std::vector<int64_t>;

constexpr float kRate = 0.125;

Tensors AddParameters(Module& module) {
  return {module.register_parameter("a", at::arange(3, at::kFloat)),
          module.register_parameter("b", at::full({2, 4}, 5.0))};
}

// What a rank's loss in a step has for gradient, in every element: a multiple
// of every number of ranks here.
float Slope(int rank, int64_t step) {
  return static_cast<float>(12 * (1 + rank) + 120 * step);
}

at::Tensor Loss(const Tensors& parameters, int rank, int64_t step) {
  return (parameters[0].sum() + parameters[1].sum()) * Slope(rank, step);
}

void Descend(const Tensors& parameters) {
  const c10::AutoGradMode no_grad(false);
  for (at::Tensor p : parameters) p.sub_(p.grad(), kRate);
}

// The mean over the ranks that have a batch in that step.
float MeanSlope(const Batches& batches, int64_t step) {
  float sum = 0, ranks = 0;
  for (size_t r = 0; r < batches.size(); ++r) {
    if (batches[r] <= step) continue;
    sum += Slope(static_cast<int>(r), step);
    ++ranks;
  }
  return sum / ranks;
}

class UnevenTest : public testing::TestWithParam<Batches> {};

// Also: every rank takes every step, and they stay alike.
TEST_P(UnevenTest, TheMeanIsOverTheRanksThatHaveABatch) {
  const Batches& batches = GetParam();
  const int64_t most = *std::max_element(batches.begin(), batches.end());
  const auto ranks = static_cast<int>(batches.size());
  RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
    Module module, reference;
    const Tensors parameters = AddParameters(module);
    const Tensors expected = AddParameters(reference);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    const int64_t mine = batches[static_cast<size_t>(comm.rank())];
    int64_t step = 0;
    for (; ddp.Join(mine - step); ++step) {
      ASSERT_LT(step, most);
      ddp.ZeroGrad();
      if (step < mine) {
        ddp.BeginForward();
        Loss(parameters, comm.rank(), step).backward();
      }
      ddp.FinishGradientSync();
      for (const at::Tensor& p : expected) {
        p.mutable_grad() = at::full(p.sizes(), MeanSlope(batches, step));
      }
      EXPECT_TRUE(EqualBits(GradientsOf(parameters), GradientsOf(expected)));
      Descend(parameters);
      Descend(expected);
      EXPECT_TRUE(EqualBits(parameters, expected)) << "step " << step;
    }
    EXPECT_EQ(step, most);
  });
}

INSTANTIATE_TEST_SUITE_P(Batches, UnevenTest,
                         testing::Values(Batches{3, 2}, Batches{2, 3},
                                         Batches{0, 2}, Batches{4, 0},
                                         Batches{2, 2}, Batches{0, 0},
                                         Batches{3}, Batches{4, 1, 3, 2},
                                         Batches{0, 0, 3}),
                         [](const auto& info) {
                           std::string name = "batches";
                           for (int64_t n : info.param)
                             name += "_" + std::to_string(n);
                           return name;
                         });

TEST(JoinTest, GradientsLeftFromTheStepBeforeDoNotCount) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module);
    BucketedDDP ddp(module, comm);
    const int64_t mine = comm.rank() == 0 ? 2 : 1;
    for (int64_t step = 0; ddp.Join(mine - step); ++step) {
      if (step < mine) {
        ddp.ZeroGrad();  // the rank that has finished drops nothing
        ddp.BeginForward();
        Loss(parameters, comm.rank(), step).backward();
      }
      ddp.FinishGradientSync();
    }
    EXPECT_EQ(parameters[0].grad()[0].item<float>(), Slope(0, 1));
  });
}

TEST(JoinTest, ARankThatHasFinishedMissesNoMicroStepAndNoWeight) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module);
    BucketedDDP ddp(module, comm, {.weigh_losses = true});
    ASSERT_TRUE(ddp.Join(comm.rank()));  // rank 0 has nothing
    for (int micro_step = 0; comm.rank() > 0 && micro_step < 2; ++micro_step) {
      std::optional<NoSync> quiet;
      if (micro_step == 0) quiet.emplace(ddp);
      ddp.BeginForward();
      const at::Tensor loss = Loss(parameters, comm.rank(), micro_step);
      ddp.Weigh(loss, comm.rank() == 1 ? 1 : 3).backward();
    }
    ddp.FinishGradientSync();
    const float sum =
        1 * (Slope(1, 0) + Slope(1, 1)) + 3 * (Slope(2, 0) + Slope(2, 1));
    EXPECT_EQ(parameters[0].grad()[0].item<float>(), sum / (2 * 1 + 2 * 3));
  });
}

// The buffers are those of the first rank with a batch.
TEST(JoinTest, BuffersComeFromARankThatStillHasBatches) {
  const Batches batches{1, 3, 2};
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module);
    at::Tensor count = module.register_buffer("count", at::zeros({2}));
    BucketedDDP ddp(module, comm, {.broadcast_buffers = true});
    const int64_t mine = batches[static_cast<size_t>(comm.rank())];
    for (int64_t step = 0; ddp.Join(mine - step); ++step) {
      ddp.ZeroGrad();
      if (step < mine) {
        ddp.BeginForward();
        EXPECT_EQ(count[0].item<float>(), step == 2 ? 12 : step == 1 ? 2 : 0);
        count.add_(step == 0 ? 1 + comm.rank() : 10 * comm.rank());
        Loss(parameters, comm.rank(), step).backward();
      }
      ddp.FinishGradientSync();
    }
    EXPECT_EQ(parameters[0].grad()[0].item<float>(), Slope(1, 2));
  });
}

TEST(JoinTest, AskedForAnErrorItNamesTheStepAndTheRanksOnEveryRank) {
  const Batches batches{1, 3, 1, 2};
  std::vector<std::string> texts(4);
  RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module);
    BucketedDDP ddp(module, comm);
    const auto own = static_cast<size_t>(comm.rank());
    const auto step = [&](int64_t number, Uneven uneven) {
      ASSERT_TRUE(ddp.Join(batches[own] - number, uneven));
      ddp.ZeroGrad();
      if (number < batches[own]) {
        ddp.BeginForward();
        Loss(parameters, comm.rank(), number).backward();
      }
      ddp.FinishGradientSync();
    };
    step(0, Uneven::kIsAnError);
    texts[own] = ErrorOf<Error>([&] { step(1, Uneven::kIsAnError); });
    step(1, Uneven::kContributeZeros);  // nothing was lost
    EXPECT_EQ(parameters[0].grad()[0].item<float>(), MeanSlope(batches, 1));
  });
  EXPECT_THAT(texts,
              Each(AllOf(HasSubstr("step 1: ranks 0 2 "),
                         HasSubstr("no batch left"), HasSubstr("ranks 1 3 "))));
}

TEST(JoinTest, WithNoBatchOnAnyRankNeitherKindOfJoinIsAnError) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm);
    EXPECT_FALSE(ddp.Join(0, Uneven::kIsAnError));
    EXPECT_FALSE(ddp.Join(0));
    EXPECT_FALSE(ddp.Join(-1));
  });
}

// Rank 1 has `fewer` batches, rank 0 has one more and no Join. Result: what
// rank 0 is told. `before_last`: what it does before that one.
std::string ErrorWithoutJoin(
    int64_t fewer, const std::function<void(Communicator&)>& before_last) {
  std::string text;
  collectives::RunRanksToAFailure({.ranks = 2}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    const auto step = [&](int64_t number) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      Loss(parameters, comm.rank(), number).backward();
      ddp.FinishGradientSync();
    };
    for (int64_t number = 0; number < fewer; ++number) step(number);
    if (comm.rank() == 1) return;
    before_last(comm);
    text = ErrorOf<PeerFailed>([&] { step(fewer); });
  });
  return text;
}

TEST(JoinTest, WithoutItTheRankThatGoesOnIsToldTheStepAndWhoLeft) {
  for (int64_t fewer : {0, 1, 2, 3}) {
    EXPECT_THAT(ErrorWithoutJoin(fewer, [](Communicator&) {}),
                AllOf(HasSubstr("step " + std::to_string(fewer) + ": "),
                      HasSubstr("rank 1")));
  }
}

// Then the first bucket cannot even be posted.
TEST(JoinTest, WithoutItWhoHasLeftLongAgoIsNamedJustAsWell) {
  const auto await_end_of_rank1 = [](Communicator& comm) {
    EXPECT_THROW(comm.Barrier("rank 1 does not come"), Error);
  };
  for (int64_t fewer : {0, 1, 2, 3}) {
    EXPECT_THAT(ErrorWithoutJoin(fewer, await_end_of_rank1),
                AllOf(HasSubstr("step " + std::to_string(fewer) + ": "),
                      HasSubstr("rank 1")));
  }
}

TEST(JoinTest, WhoSaidToHaveNoBatchMayNotRunOne) {
  RunRanksHere({.ranks = 2, .timeout = std::chrono::minutes(1)},
               [](Communicator& comm) {
                 Module module;
                 const Tensors parameters = AddLayers(module, 0);
                 BucketedDDP ddp(module, comm);
                 ASSERT_TRUE(ddp.Join(comm.rank() == 0 ? 1 : 0));
                 if (comm.rank() == 1) {
                   EXPECT_THAT(ErrorOf<Error>([&] { ddp.BeginForward(); }),
                               HasSubstr("no batch left"));
                 } else {
                   ddp.BeginForward();
                   LayersLoss(parameters, InputOf(0)).backward();
                 }
                 ddp.FinishGradientSync();
               });
}

TEST(JoinTest, ABatchThatCannotBeLoadedIsGivenUpOnAllRanks) {
  RunRanksHere({.ranks = 2, .timeout = std::chrono::minutes(1)},
               [](Communicator& comm) {
                 Module module;
                 const Tensors parameters = AddLayers(module, 0);
                 BucketedDDP ddp(module, comm);
                 ASSERT_TRUE(ddp.Join(2));
                 if (comm.rank() == 1) {
                   ddp.Reset("cannot read");  // before any forward
                 } else {
                   ddp.BeginForward();
                   LayersLoss(parameters, InputOf(0)).backward();
                   EXPECT_THAT(ErrorOf<collectives::PeerFailed>(
                                   [&] { ddp.FinishGradientSync(); }),
                               HasSubstr("cannot read"));
                 }
                 ASSERT_TRUE(ddp.Join(1));
                 ddp.BeginForward();
                 LayersLoss(parameters, InputOf(comm.rank())).backward();
                 ddp.FinishGradientSync();
                 EXPECT_TRUE(parameters[0].grad().defined());
               });
}

TEST(JoinTest, BetweenMicroStepsItIsRefused) {
  RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm);
    const NoSync quiet(ddp);
    ddp.BeginForward();
    LayersLoss(parameters, InputOf(0)).backward();
    EXPECT_THAT(ErrorOf<Error>([&] { ddp.Join(1); }), HasSubstr("micro-step"));
  });
}

TEST(JoinTest, TheOnlyActiveRanksBF16GradientsKeepTheirBits) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    Module module;
    const at::Tensor w =
        module.register_parameter("w", at::zeros({64}, at::kBFloat16));
    BucketedDDP ddp(module, comm);
    ASSERT_TRUE(ddp.Join(comm.rank() == 0 ? 1 : 0));
    const at::Tensor slope = Random(3, {64}, at::kBFloat16);
    if (comm.rank() == 0) {
      ddp.BeginForward();
      (w * slope).sum().backward();
    }
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({w.grad()}, {slope}));
  });
}

}  // namespace
}  // namespace trainsys
