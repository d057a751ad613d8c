#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/recompute/segments.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

using ::testing::Each;

TEST_F(CheckpointTest, EightThreadsAtOnceEachKeepTheirBits) {
  constexpr int kThreads = 8;
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&wrong = wrong[rank], rank] {
      const RankGeneratorScope scope(MakeRankGenerator(5, 0, rank));
      const std::vector<Block> blocks{Block(8, 16, 0.3), Block(8, 16, 0.3)};
      const at::Tensor x = at::randn({rank + 1, 8}).set_requires_grad(true);
      for (int i = 0; i < 20; ++i) {
        Tensors gradients[2];
        for (const Mode mode : {Mode::kPlain, Mode::kCheckpointed}) {
          const RankGeneratorScope step(MakeRankGenerator(6, i, rank));
          gradients[static_cast<int>(mode)] = Gradients(mode, blocks, x);
        }
        for (size_t g = 0; g < gradients[0].size(); ++g) {
          wrong += !at::equal(gradients[0][g], gradients[1][g]);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, Each(0));
}

TEST_F(CheckpointTest, BackwardMayRunOnAnotherThread) {
  const std::vector<Block> blocks{Block(8, 16, 0.3)};
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
    const at::Tensor loss = Loss(Apply(mode, blocks[0], x));
    std::thread([&] { loss.backward(); }).join();
    return TakeGradients(ParametersOf(blocks));
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, ASecondRunOnAnotherThreadIsBookedToTheFirstOnesLedger) {
  const MemoryLedger ledger;
  at::Tensor kept, loss;
  {
    const LedgerScope mine(ledger);
    const at::Tensor x = at::ones({10}).set_requires_grad(true);
    loss = Checkpoint(
               [&kept](const at::Tensor& t) {
                 if (IsRecomputing()) kept = at::ones({1000});
                 return t.exp();
               },
               x)
               .sum();
  }
  std::thread([&] { loss.backward(); }).join();
  ASSERT_TRUE(kept.defined());
  const int64_t with_it = ledger.Current().Total();
  kept.reset();
  EXPECT_EQ(with_it - ledger.Current().Total(), 4000);
}

// libtorch hands nested backward passes to other threads from depth 60 on; a
// rank's generator, hooks and collectives are its own thread's.
class Threads {
 public:
  Layer Noting(Layer layer) {
    return [this, layer](const at::Tensor& t) {
      seen_.insert(std::this_thread::get_id());
      return layer(t);
    };
  }
  void ExpectOnlyThisOne() const {
    EXPECT_EQ(seen_, std::set{std::this_thread::get_id()});
  }

 private:
  std::set<std::thread::id> seen_;
};

TEST_F(CheckpointTest, FiveHundredBlocksInARowKeepTheBitsAndTheThread) {
  std::vector<Block> blocks;
  for (int i = 0; i < 500; ++i) blocks.emplace_back(4, 8);
  const at::Tensor x = at::randn({2, 4}).set_requires_grad(true);
  const Tensors plain = Gradients(Mode::kPlain, blocks, x);
  Threads threads;
  at::Tensor y = x;
  for (const Block& block : blocks) y = Checkpoint(threads.Noting(block), y);
  Loss(y).backward();
  Tensors all = ParametersOf(blocks);
  all.push_back(x);
  ExpectSameBits(TakeGradients(all), plain);
  threads.ExpectOnlyThisOne();
}

TEST_F(CheckpointTest, NestingAHundredDeepKeepsTheThread) {
  Threads threads;
  Layer layer = threads.Noting([](const at::Tensor& t) { return t.sin(); });
  for (int i = 0; i < 100; ++i) {
    layer = threads.Noting([layer](const at::Tensor& t) {
      return Checkpoint(layer, t * 0.5).sin();
    });
  }
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  Checkpoint(layer, x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  threads.ExpectOnlyThisOne();
}

}  // namespace
}  // namespace trainsys
