#include "trainsys/zero/step_in_backward.h"

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/layers_rank.h"
#include "tests/zero/slow_communicator.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/optim/clipped_step.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/testing/record_matchers.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::AsBuffer;
using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::NowNs;
using collectives::PhaseRecord;
using collectives::PhaseScope;
using collectives::RankFunction;
using collectives::Record;
using collectives::ReduceOp;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using torch::nn::Module;

// Until it is so on every rank. A collective, like those it waits for.
void AwaitOnAll(Communicator& comm, const std::function<bool()>& is_so) {
  const int64_t deadline = NowNs() + 60'000'000'000;
  for (int64_t all = 0; all == 0;) {
    all = is_so() ? 1 : 0;
    comm.AllReduce(AsBuffer(std::span(&all, 1)), ReduceOp::kMin, "is it so");
    if (NowNs() > deadline) throw Error("it never was so");
  }
}

std::vector<Record> Broadcasts(Communicator& comm) {
  std::vector<Record> broadcasts;
  for (const Record& record : comm.recorder().Records()) {
    if (record.channel == "zero" && record.label == "parameters") {
      broadcasts.push_back(record);
    }
  }
  return broadcasts;
}

// Of the next update.
std::function<bool()> IsWritten(const at::Tensor& tensor) {
  return [tensor, before = tensor._version()] {
    return tensor._version() > before;
  };
}

// Layers of one width each, so that the second has a gradient only after the
// hook on the first's output was called.
struct Halves {
  explicit Halves(Module& module)
      : early(module.register_parameter("early", at::full({64}, 2.0f))),
        late(module.register_parameter("late", at::full({64}, 3.0f))) {}

  // In its backward `halfway` is called when `late` has its gradient and
  // `early` does not. The early half multiplies by `factor`.
  at::Tensor Loss(const at::Tensor& factor,
                  const std::function<void()>& halfway) const {
    const at::Tensor h = early * factor;
    h.register_hook([halfway](const at::Tensor& grad) {
      halfway();
      return grad;
    });
    return (h * late).sum();
  }

  at::Tensor early, late;
};

BucketedDDPOptions OneEach(GradientSharding sharding) {
  return WithWay({.bucket_bytes = 1, .first_bucket_bytes = 1},
                 InBackward(sharding));
}

class StepInBackwardTest : public testing::TestWithParam<GradientSharding> {};

INSTANTIATE_TEST_SUITE_P(Gradients, StepInBackwardTest,
                         testing::ValuesIn(kShardings), [](const auto& info) {
                           return Name(InBackward(info.param));
                         });

// With SGD a parameter is what it was less lr times its gradient.
TEST_P(StepInBackwardTest, ParametersAreUpdatedAndSentWhileBackwardGoesOn) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Halves halves(module);
    BucketedDDP ddp(module, comm, OneEach(GetParam()));
    StepInBackward optimizer(ddp, comm, SGDOptions{.lr = 0.5});
    ddp.BeginForward();
    const auto is_written = IsWritten(halves.late);
    const at::Tensor ones = at::full({64}, 1.0f);
    std::vector<Record> halfway;
    const at::Tensor loss = halves.Loss(ones, [&] {
      AwaitOnAll(comm, is_written);
      halfway = Broadcasts(comm);
      // Flat, each rank owns one of the two.
      if (comm.rank() == 0) return;
      EXPECT_EQ(halves.late[0].item<float>(), 2);
    });
    loss.backward();
    ASSERT_EQ(halfway.size(), 1);
    EXPECT_EQ(halfway[0].bytes, 256);
    EXPECT_EQ(halves.early.grad().defined(), false);
    ddp.FinishGradientSync();
    optimizer.Step();
    EXPECT_EQ(halves.late[63].item<float>(), 2);
    EXPECT_EQ(halves.early[63].item<float>(), 0.5);
  });
}

// Whoever is slow: nobody waits for it in there.
TEST(StepInBackwardTest, NothingIsWaitedForInsideBackward) {
  for (const GradientSharding sharding :
       {GradientSharding::kNone, GradientSharding::kReduced}) {
    OnRanks(3, [&](Communicator& comm) {
      SlowCommunicator slow(comm, comm.rank() == 1 ? 3 : 0);
      LayersRank rank(slow, InBackward(sharding), SmallBuckets());
      for (int64_t step = 0; step < 3; ++step) {
        rank.optimizer->ZeroGrad();
        rank.ddp.BeginForward();
        const at::Tensor loss = rank.Loss(step);
        {
          const PhaseScope phase(comm.recorder(), "backward", step);
          loss.backward();
        }
        rank.ddp.FinishGradientSync();
        rank.optimizer->Step();
        const PhaseRecord backward =
            *FindPhase(comm.recorder(), "backward", step);
        EXPECT_THAT(comm.recorder(),
                    PostedDuring("backward", step,
                                 AllOf(Not(IsEmpty()), Each(IsAsync()),
                                       Each(WaitedOnlyAfter(backward)))));
      }
    });
  }
}

TEST_P(StepInBackwardTest, SlowRanksEndInTheBitsOfOneRank) {
  const Tensors expected = LayersTrained(3, 5);
  for (const Partition partition : kPartitions) {
    OnRanks(3, [&](Communicator& comm) {
      const size_t lag[] = {0, 4, 1};
      SlowCommunicator slow(comm, lag[comm.rank()]);
      LayersRank rank(slow, InBackward(GetParam(), partition), SmallBuckets());
      for (int64_t step = 0; step < 5; ++step) rank.Step(step);
      EXPECT_TRUE(EqualBits(rank.parameters, expected));
    });
  }
}

TEST_P(StepInBackwardTest, ParametersAreWholeBeforeTheNextForwardWithoutAStep) {
  const Tensors expected = LayersTrained(3, 2);
  OnRanks(3, [&](Communicator& comm) {
    SlowCommunicator slow(comm, comm.rank() == 2 ? 100 : 0);
    LayersRank rank(slow, InBackward(GetParam()), SmallBuckets());
    for (int64_t step = 0; step < 2; ++step) {
      rank.optimizer->ZeroGrad();
      rank.Backward(step);
      rank.ddp.FinishGradientSync();
    }
    rank.ddp.ZeroGrad();
    rank.ddp.BeginForward();
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

TEST_P(StepInBackwardTest, ParametersAreWholeBeforeAnEvaluationToo) {
  const Tensors expected = LayersTrained(3, 1);
  OnRanks(3, [&](Communicator& comm) {
    SlowCommunicator slow(comm, comm.rank() == 2 ? 100 : 0);
    LayersRank rank(slow, InBackward(GetParam()), SmallBuckets());
    rank.Backward(0);
    rank.ddp.FinishGradientSync();
    const c10::AutoGradMode evaluation(false);
    rank.ddp.BeginForward();
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// Nothing has saved it: what the segment makes of it tells.
TEST_P(StepInBackwardTest, ASegmentThatReadsAnUpdatedParameterIsSeenIfAsked) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Halves halves(module);
    BucketedDDP ddp(module, comm, OneEach(GetParam()));
    StepInBackward optimizer(ddp, comm, SGDOptions{.lr = 0.5});
    ddp.BeginForward();
    const auto is_written = IsWritten(halves.late);
    const at::Tensor h = Checkpoint(
        {.label = "early half", .check = SecondRunCheck::kValues},
        [&](const at::Tensor& x) { return (x + halves.late.detach()).tanh(); },
        halves.early);
    h.register_hook([&](const at::Tensor& grad) {
      AwaitOnAll(comm, is_written);
      optimizer.Step();  // it has come to the other rank
      return grad;
    });
    const at::Tensor loss = (h * halves.late).sum();
    const std::string text = ErrorOf<std::exception>([&] { loss.backward(); });
    EXPECT_THAT(text, HasSubstr("early half"));
    ddp.Reset(text);
  });
}

// Its broadcasts are posted where a segment's second run calls a collective.
TEST_P(StepInBackwardTest, ItIsNoPartOfASegmentThatCommunicates) {
  OnRanks(3, [](Communicator& comm) {
    const auto other = comm.Duplicate("of the model");
    SlowCommunicator slow(comm, comm.rank());
    Module module;
    const Tensors p = AddLayers(module, 0);
    BucketedDDP ddp(module, slow, OneEach(GetParam()));
    StepInBackward optimizer(ddp, slow, AdamWOptions{});
    for (int step = 0; step < 5; ++step) {
      optimizer.ZeroGrad();
      ddp.BeginForward();
      at::Tensor x = InputOf(comm.rank());
      for (size_t i = 0; i < p.size(); i += 2) {
        x = Checkpoint(
            [&, i](const at::Tensor& in) {
              other->Barrier("in the segment");
              return at::tanh(at::matmul(in, p[i]) + p[i + 1]);
            },
            x);
      }
      x.sum().backward();
      ddp.FinishGradientSync();
      optimizer.Step();
    }
    EXPECT_TRUE(CheckInSync(p, comm).empty());
  });
}

// The gradient of `early` would be by the new `late`.
TEST_P(StepInBackwardTest, AParameterThatANodeStillNeedsIsAnErrorOnAllRanks) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Halves halves(module);
    BucketedDDP ddp(module, comm, OneEach(GetParam()));
    StepInBackward optimizer(ddp, comm, SGDOptions{.lr = 0.5});
    ddp.BeginForward();
    const auto is_written = IsWritten(halves.late);
    const at::Tensor loss = halves.Loss(halves.late.detach(),
                                        [&] { AwaitOnAll(comm, is_written); });
    const std::string text = ErrorOf<std::exception>([&] { loss.backward(); });
    EXPECT_THAT(text, HasSubstr("modified by an inplace operation"));
    ddp.Reset(text);
    EXPECT_FALSE(halves.early.grad().defined());
    // Alike on all ranks, and the next step works.
    ddp.BeginForward();
    EXPECT_TRUE(CheckInSync(ddp.parameters(), comm).empty());
    halves.Loss(at::full({64}, 1.0f), [] {}).backward();
    ddp.FinishGradientSync();
    optimizer.Step();
    EXPECT_TRUE(CheckInSync(ddp.parameters(), comm).empty());
  });
}

TEST_P(StepInBackwardTest, RanksWithoutABatchTakePart) {
  Module reference;
  const Tensors expected = AddLayers(reference, 0);
  FlatOptimizer one(expected, kAdamW);
  for (int64_t step = 0; step < 3; ++step) {
    // Rank r has r + 1 batches of its own.
    for (const at::Tensor& p : expected) p.mutable_grad().reset();
    for (int rank = static_cast<int>(step); rank < 3; ++rank) {
      LayersLoss(expected,
                 InputOf(static_cast<int>(LayersRank::InputNumber(step, rank))))
          .backward();
    }
    for (const at::Tensor& p : expected) p.grad().div_(3 - step);
    one.Step();
  }
  OnRanks(3, [&](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    const int64_t mine = comm.rank() + 1;
    int64_t step = 0;
    for (; rank.ddp.ZeroGrad(), rank.ddp.Join(mine - step); ++step) {
      if (step < mine) rank.Backward(step);
      rank.ddp.FinishGradientSync();
      rank.optimizer->Step();
    }
    EXPECT_EQ(step, 3);
    EXPECT_TRUE(EqualBits(rank.parameters, expected));
  });
}

// What is refused, and in which words.
std::string RefusalOf(Communicator& comm, GradientSharding sharding,
                      const std::function<void(LayersRank&)>& fn) {
  LayersRank rank(comm, InBackward(sharding), SmallBuckets());
  rank.Step(0);
  const std::string text = ErrorOf<Error>([&] { fn(rank); });
  rank.ddp.Reset(text);
  rank.Step(1);  // nothing is left of it
  EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  return text;
}

TEST_P(StepInBackwardTest, WhatMustKnowAllGradientsFirstIsRefusedInOneLine) {
  OnRanks(2, [](Communicator& comm) {
    const auto refused = [&](const std::string& words,
                             const std::function<void(LayersRank&)>& fn) {
      const std::string text = RefusalOf(comm, GetParam(), fn);
      EXPECT_THAT(text, HasSubstr(words));
      EXPECT_THAT(text, HasSubstr("; expected "));
      EXPECT_THAT(text, Not(HasSubstr("\n")));
    };
    refused("NoSync, but", [](LayersRank& rank) {
      const NoSync quiet(rank.ddp);
      rank.ddp.ZeroGrad();
      rank.ddp.BeginForward();
    });
    refused("retain_graph, but is stepped inside", [](LayersRank& rank) {
      rank.ddp.ZeroGrad();
      rank.ddp.BeginForward();
      rank.Loss(1).backward({}, /*retain_graph=*/true);
    });
    refused("the gradients' norm, for clipping or loss scaling",
            [](LayersRank& rank) { rank.optimizer->GradNorm(); });
    refused("the gradients' norm, for clipping or loss scaling",
            [](LayersRank& rank) { StepClipped(*rank.optimizer, 1); });
    refused("the gradients' norm, for clipping or loss scaling",
            [](LayersRank& rank) {
              LossScaler scaler;
              StepIfFinite(*rank.optimizer, scaler);
            });
    refused("a step with scaled gradients, but",
            [](LayersRank& rank) { rank.optimizer->StepScaled(0.5); });
  });
}

TEST_P(StepInBackwardTest, OptionsWhoseMeansAreKnownLaterAreRefused) {
  OnRanks(2, [](Communicator& comm) {
    const auto refused = [&](const std::string& name,
                             BucketedDDPOptions options) {
      Module module;
      AddLayers(module, 0);
      BucketedDDP ddp(module, comm, WithWay(options, InBackward(GetParam())));
      const std::string text =
          ErrorOf<InvalidArgument>([&] { StepInBackward(ddp, comm, kAdamW); });
      EXPECT_THAT(text, HasSubstr("stepping inside backward with " + name));
      EXPECT_THAT(text, Not(HasSubstr("\n")));
    };
    refused("find_unused_parameters", {.find_unused_parameters = true});
    if (GetParam() == GradientSharding::kStored) return;  // refused before
    refused("weigh_losses", {.weigh_losses = true});
  });
}

TEST_P(StepInBackwardTest, AnUnusedParameterIsAnErrorAndRanksStayAlike) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    rank.Step(0);
    rank.ddp.ZeroGrad();
    rank.ddp.BeginForward();
    if (comm.rank() == 0) {
      rank.Loss(1).backward();
    } else {
      rank.parameters[4].sum().backward();
    }
    EXPECT_THAT(ErrorOf<Error>([&] { rank.ddp.FinishGradientSync(); }),
                HasSubstr("no gradient for"));
    rank.ddp.BeginForward();
    EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  });
}

TEST_P(StepInBackwardTest, AnotherOptimizerTakesOverOnceItIsGone) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Tensors parameters = AddLayers(module, 0);
    BucketedDDP ddp(module, comm,
                    WithWay(SmallBuckets(), InBackward(GetParam())));
    Tensors before = Snapshot(parameters);
    const auto step = [&](Optimizer* optimizer) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      ddp.FinishGradientSync();
      if (optimizer) optimizer->Step();
      const bool has_changed = !EqualBits(parameters, before);
      before = Snapshot(parameters);
      return has_changed;
    };
    for (int i = 0; i < 2; ++i) {
      auto optimizer = std::make_unique<StepInBackward>(ddp, comm, kAdamW);
      EXPECT_TRUE(step(optimizer.get()));
      optimizer.reset();
      EXPECT_FALSE(step(nullptr));
    }
    ZeROOptimizer after(ddp, comm, kAdamW);
    EXPECT_TRUE(step(&after));
  });
}

TEST_P(StepInBackwardTest, ASecondOneAtATimeIsRefused) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    EXPECT_THROW(StepInBackward(rank.ddp, comm, kAdamW), InvalidArgument);
    const Tensors before = Snapshot(rank.parameters);
    rank.Step(0);
    EXPECT_FALSE(EqualBits(rank.parameters, before));
  });
}

// Some ranks have heard of a bucket by then, and some have not.
TEST_P(StepInBackwardTest, ItDoesNotBeginInTheMiddleOfAStep) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const Tensors p = AddLayers(module, 0);
    BucketedDDP ddp(module, comm, OneEach(GetParam()));
    ddp.BeginForward();
    LayersLoss(p, InputOf(comm.rank())).backward();
    EXPECT_THAT(ErrorOf<InvalidArgument>(
                    [&] { StepInBackward(ddp, comm, AdamWOptions{}); }),
                HasSubstr("gradients on their way already"));
    ddp.FinishGradientSync();
  });
}

TEST_P(StepInBackwardTest, OtherDataInTheMiddleOfAStepIsAnError) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    rank.ddp.BeginForward();
    const at::Tensor loss = rank.Loss(0);
    rank.parameters[0].set_data(rank.parameters[0].detach().clone());
    loss.backward();
    rank.ddp.FinishGradientSync();
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { rank.optimizer->Step(); }),
                HasSubstr("given other data between BeginForward and Step"));
  });
}

// Its own, as of options that it alone has changed.
TEST_P(StepInBackwardTest, AnErrorOfOneRankBeforeAStepCanBeGivenUp) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    rank.Step(0);
    rank.optimizer->ZeroGrad();
    if (comm.rank() == 0) {
      rank.optimizer.groups()[0].options = AdamWOptions{.lr = -1};
      const std::string text =
          ErrorOf<InvalidArgument>([&] { rank.ddp.BeginForward(); });
      EXPECT_THAT(text, HasSubstr("lr is -1"));
      rank.ddp.Reset(text);
      rank.optimizer.groups()[0].options = kAdamW;
    } else {
      rank.Backward(1);
      EXPECT_THAT(ErrorOf<collectives::PeerFailed>(
                      [&] { rank.ddp.FinishGradientSync(); }),
                  HasSubstr("lr is -1"));
    }
    rank.Step(2);
    EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  });
}

TEST_P(StepInBackwardTest, GoneInTheMiddleOfAStepItKeepsNobodyWaiting) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    OnRanks(3, [](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm,
                      WithWay(SmallBuckets(), InBackward(GetParam())));
      {
        const StepInBackward optimizer(ddp, comm, kAdamW);
        ddp.BeginForward();
        LayersLoss(parameters, InputOf(comm.rank())).backward();
      }
      ddp.FinishGradientSync();
      EXPECT_TRUE(CheckInSync(parameters, comm).empty());
    });
  }
}

// All there was is gone at once, in every order that lifetimes allow.
TEST_P(StepInBackwardTest, GoneWithItsWrapperInTheMiddleOfAStep) {
  for (const bool has_backward : {false, true}) {
    OnRanks(3, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      {
        BucketedDDP ddp(module, comm,
                        WithWay(SmallBuckets(), InBackward(GetParam())));
        const StepInBackward optimizer(ddp, comm, kAdamW);
        ddp.BeginForward();
        const at::Tensor loss = LayersLoss(parameters, InputOf(comm.rank()));
        if (has_backward) loss.backward();
      }
      comm.Barrier("all are here");
      LayersLoss(parameters, InputOf(comm.rank())).backward();
    });
  }
}

TEST_P(StepInBackwardTest, WrongOptionsOnAllRanksAreAnErrorAndRanksStayAlike) {
  OnRanks(2, [](Communicator& comm) {
    LayersRank rank(comm, InBackward(GetParam()), SmallBuckets());
    rank.Step(0);
    rank.optimizer.groups()[0].options = SGDOptions{};
    const std::string text = ErrorOf<InvalidArgument>([&] { rank.Step(1); });
    EXPECT_THAT(text, HasSubstr("group 0 is SGD"));
    rank.optimizer.groups()[0].options = kAdamW;
    rank.ddp.Reset(text);
    rank.Step(2);
    EXPECT_TRUE(CheckInSync(rank.parameters, comm).empty());
  });
}

}  // namespace
}  // namespace trainsys
