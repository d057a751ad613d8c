#include "trainsys/train/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/backend/backend.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/testing/record_matchers.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseRecord;
using collectives::Recorder;
using collectives::RunRanksHere;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kSteps = 5;

// Result: the losses that this rank has seen.
std::vector<double> Train(Communicator& comm) {
  const auto model = MakeMlp(comm.rank());
  BucketedDDP ddp(*model, comm, {.bucket_bytes = 32 << 10});
  ZeROOptimizer optimizer(ddp, comm, AdamWOptions{.lr = 1e-2});
  const Samples samples = MakeSamples(0).Part(comm.rank(), comm.ranks());
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult result = TrainStep(
        {[&] { return LossOf(*model, samples); }, ddp, optimizer, comm}, step);
    losses.push_back(result.loss);
    EXPECT_TRUE(CheckInSync(ddp.parameters(), comm).empty());
  }
  return losses;
}

TEST(TrainStepTest, EveryRankSeesTheSameFallingLoss) {
  for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    std::vector<std::vector<double>> losses(static_cast<size_t>(ranks));
    RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
      losses[static_cast<size_t>(comm.rank())] = Train(comm);
    });
    EXPECT_THAT(losses, Each(losses[0]));
    EXPECT_LT(losses[0].back(), losses[0].front());
  }
}

// The first step's loss is that of rank 0's weights on everybody's samples.
TEST(TrainStepTest, TheLossIsTheMeanOverRanks) {
  const auto model = MakeMlp(0);
  const double whole = LossOf(*model, MakeSamples(0)).item<double>();
  RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    EXPECT_NEAR(Train(comm)[0], whole, 1e-6);
  });
}

// As processes do, each rank asks for itself.
TEST(TrainStepTest, OneRankThatWantsToStopStopsAllAfterTheSameStep) {
  constexpr int kRanks = 4;
  for (int asking = 0; asking < kRanks; ++asking) {
    std::vector<std::vector<double>> losses(kRanks);
    RunRanksHere({.ranks = kRanks}, [&](Communicator& comm) {
      int64_t step = 0;
      const auto wants_to_stop = [&] {
        return comm.rank() == asking && step >= 2;
      };
      const auto model = MakeMlp(comm.rank());
      BucketedDDP ddp(*model, comm);
      ZeROOptimizer optimizer(ddp, comm, AdamWOptions{.lr = 1e-2});
      const Samples samples = MakeSamples(0).Part(comm.rank(), comm.ranks());
      for (bool must_stop = false; !must_stop && step < kSteps; ++step) {
        const StepResult result =
            TrainStep({[&] { return LossOf(*model, samples); }, ddp, optimizer,
                       comm, wants_to_stop},
                      step);
        must_stop = result.must_stop;
        losses[static_cast<size_t>(comm.rank())].push_back(result.loss);
      }
    });
    EXPECT_THAT(losses, Each(SizeIs(3)));
    EXPECT_THAT(losses, Each(losses[0]));
  }
}

TEST(TrainStepTest, ItsPhasesAreMarkedInOrderInsideTheStep) {
  const auto recorders =
      RunRanksHere({.ranks = 2}, [](Communicator& comm) { Train(comm); });
  for (const Recorder& recorder : recorders) {
    ASSERT_EQ(recorder.Phases().size(), 5 * kSteps);
    for (int64_t step = 0; step < kSteps; ++step) {
      const PhaseRecord* phases = &recorder.Phases()[5 * step];
      std::vector<std::string> names;
      int64_t end_ns = phases[0].begin_ns;
      for (int i = 0; i < 5; ++i) {
        names.push_back(phases[i].name);
        EXPECT_EQ(phases[i].step, step);
        EXPECT_GE(phases[i].begin_ns, i < 2 ? phases[0].begin_ns : end_ns);
        EXPECT_LE(phases[i].end_ns, phases[0].end_ns);
        end_ns = phases[i].end_ns;
      }
      EXPECT_THAT(names, ElementsAre("step", "forward", "backward",
                                     "gradient sync", "optimizer"));
    }
  }
}

TEST(TrainStepTest, TheBucketsArePostedInsideBackward) {
  const auto recorders =
      RunRanksHere({.ranks = 3}, [](Communicator& comm) { Train(comm); });
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_THAT(recorders, Each(OverlapsBackward(step)));
  }
}

}  // namespace
}  // namespace trainsys
