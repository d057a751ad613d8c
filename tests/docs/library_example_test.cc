// The code of docs/library.md, block by block as it stands there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/c10d/process_runner.h"
#include "collectives/shm/run_ranks.h"
#include "trainsys/checks/faulty_communicator.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/testing/record_matchers.h"
#include "trainsys/train/step.h"
#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using namespace collectives;  // as short as on the page
using ::testing::Each;
using ::testing::Not;

ThreadRunner threads;

Samples BatchOf(int64_t step, int rank) {
  return MakeSamples(static_cast<uint64_t>(step)).Part(rank, /*ranks=*/2);
}

TEST(MyCollectiveTest, EveryRankHasTheSum) {
  const auto recorders = RunRanks({.ranks = 4}, [](Communicator& comm) {
    std::vector<float> x(1000, static_cast<float>(comm.rank()));
    comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
    EXPECT_THAT(x, Each(0 + 1 + 2 + 3));
  });
  EXPECT_THAT(recorders, Each(Sends(2 * 4000 * 3 / 4)));
}

// Three steps. Result: every rank's records, and rank 0's parameters.
std::pair<std::vector<Recorder>, std::vector<at::Tensor>> Train(
    RankRunner& runner, Fault fault = Fault::kNone) {
  std::vector<at::Tensor> trained;
  auto recorders = runner.Run({.ranks = 2}, [&](Communicator& real) {
    FaultyCommunicator comm(real, fault);
    const auto model = MakeMlp(/*seed=*/comm.rank());  // rank 0's wins
    BucketedDDP ddp(*model, comm, {.bucket_bytes = 32 << 10});
    ZeROOptimizer optimizer(ddp, comm, AdamWOptions());
    for (int64_t step = 0; step < 3; ++step) {
      const auto loss = [&] {
        return LossOf(*model, BatchOf(step, comm.rank()));
      };
      TrainStep({loss, ddp, optimizer, comm}, step);
    }
    if (comm.rank() == 0) trained = Snapshot(ddp.parameters());
  });
  return {recorders, trained};
}

TEST(MyTrainingTest, ReductionsRunUnderBackward) {
  const auto [recorders, trained] = Train(threads);
  EXPECT_THAT(recorders, Each(OverlapsBackward(/*step=*/2)));
  EXPECT_THAT(recorders, Each(MakesTheSameCollectivesAs(recorders[0])));
  EXPECT_THAT(recorders[1], PostedDuring("backward", 2, Each(IsBucket())));
}

TEST(MyTrainingTest, TwoRanksTrainAsOneDoesAndProcessesAsThreads) {
  const auto one = MakeMlp(/*seed=*/0);
  FlatOptimizer optimizer(one->parameters(), AdamWOptions());
  TrainInMicroSteps(one->parameters(), optimizer, /*steps=*/3, /*ranks=*/2,
                    [&](int64_t step, int rank) {
                      return LossOf(*one, BatchOf(step, rank));
                    });
  EXPECT_TRUE(EqualBits(Train(threads).second, one->parameters()));
  GlooThreadRunner gloo;
  EXPECT_TRUE(EqualBits(Train(gloo).second, one->parameters()));
}

TEST(MyTrainingTest, TheTestsAboveWouldNotice) {
  EXPECT_THAT(Train(threads, Fault::kWaitInHook).first,
              Each(Not(OverlapsBackward(/*step=*/2))));
}

TEST(MyModelTest, RecomputationSavesTheInputOfEachBlockOnly) {
  MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const auto model = MakeWideBlocks(/*seed=*/0, Checkpointed());  // four
  const SavedBytesScope saved(model->parameters());
  const at::Tensor y = model->Forward(MakeSamples(0).x.repeat({1, 8}));
  EXPECT_EQ(saved.distinct_bytes(), 4 * (64 * 256) * 4);  // blocks x [64, 256]
  EXPECT_EQ(ledger.Current()[MemoryCategory::kActivation],
            saved.distinct_bytes());
}

}  // namespace
}  // namespace trainsys
