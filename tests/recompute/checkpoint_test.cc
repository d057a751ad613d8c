#include "trainsys/recompute/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/recompute/segments.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/memory/saved_bytes.h"

namespace trainsys {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST_F(CheckpointTest, ABlockUsedThreeTimesGetsEachGradientAndHookOnce) {
  const Block block(8, 16);
  const std::vector<Block> tied{block, block, block};  // the same tensors
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  std::vector<int> calls(4, 0);
  std::vector<GradientHook> hooks;
  for (size_t i = 0; i < 4; ++i) {
    hooks.emplace_back(block.parameters[i], [&calls, i] { ++calls[i]; });
  }
  const auto run = [&](Mode mode) {
    at::Tensor y = x;
    for (const Block& b : tied) y = Apply(mode, b, y);
    Loss(y).backward();
    Tensors all = block.parameters;
    all.push_back(x);
    return TakeGradients(all);
  };
  const Tensors plain = run(Mode::kPlain);
  EXPECT_THAT(calls, Each(1));
  ExpectSameBits(run(Mode::kCheckpointed), plain);
  EXPECT_THAT(calls, Each(2));
}

void ExpectNestingKeepsTheBits(size_t depth) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < depth; ++i) blocks.emplace_back(4, 8, 0.1);
  const at::Tensor x = at::randn({2, 4}).set_requires_grad(true);
  const auto gradients = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 0, 0));
    if (mode == Mode::kPlain) return Gradients(mode, blocks, x);
    Loss(Nested(blocks, 0, x)).backward();
    Tensors all = ParametersOf(blocks);
    all.push_back(x);
    return TakeGradients(all);
  };
  const Tensors plain = gradients(Mode::kPlain);
  ExpectSameBits(gradients(Mode::kCheckpointed), plain);
}

TEST_F(CheckpointTest, NestingThreeDeepKeepsTheBits) {
  ExpectNestingKeepsTheBits(3);
}

TEST_F(CheckpointTest, NestingAHundredDeepKeepsTheBits) {
  ExpectNestingKeepsTheBits(100);
}

TEST_F(CheckpointTest, ParametersGetGradientsWhereNoInputRequiresOne) {
  const std::vector<Block> blocks{Block(8, 16)};
  const at::Tensor x = at::randn({4, 8});
  const Tensors plain = Gradients(Mode::kPlain, blocks, x);
  ExpectSameBits(Gradients(Mode::kCheckpointed, blocks, x), plain);
}

TEST_F(CheckpointTest, ANumberTimesAZeroDimensionalTensorKeepsTheBits) {
  const at::Tensor x = at::full({}, 0.7f).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) { return (t * 0.1) * (t * 0.3); };
  const auto run = [&](Mode mode) {
    Apply(mode, layer, x).backward();
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, RunsTheFunctionTwiceAndSaysWhichRunItIs) {
  std::vector<bool> runs;
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [&](const at::Tensor& t) {
        runs.push_back(IsRecomputing());
        return t.exp().exp();
      },
      x);
  EXPECT_THAT(runs, ElementsAre(false));
  y.sum().backward();
  EXPECT_THAT(runs, ElementsAre(false, true));
  EXPECT_FALSE(IsRecomputing());
}

TEST_F(CheckpointTest, WithGradientsOffItIsJustTheFunction) {
  const c10::NoGradGuard no_grad;
  const SavedBytesScope saved;
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(saved.raw_bytes(), 0);
}

TEST_F(CheckpointTest, ARetainedGraphRunsBackwardTwice) {
  const Block block(8, 16, 0.3);
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  int runs = 0;
  const at::Tensor loss = Loss(Checkpoint(
      [&](const at::Tensor& t) {
        ++runs;
        return block(t);
      },
      x));
  Tensors all = block.parameters;
  all.push_back(x);
  loss.backward({}, /*retain_graph=*/true);
  const Tensors first = TakeGradients(all);
  loss.backward();
  ExpectSameBits(TakeGradients(all), first);
  EXPECT_EQ(runs, 2);
}

// Depth k runs k + 1 times: once in forward, and again for each level's
// second run that is or contains its own.
TEST_F(CheckpointTest, NestingThreeDeepRunsEachLevelOnceMoreThanItsDepth) {
  std::vector<int> runs(3, 0), updates(3, 0);
  const std::function<at::Tensor(size_t, const at::Tensor&)> level =
      [&](size_t depth, const at::Tensor& t) {
        ++runs[depth];
        if (!IsRecomputing()) ++updates[depth];  // as running statistics do
        const at::Tensor y = t.exp() * 0.5;
        if (depth == 2) return y.sin();
        return Checkpoint(level, depth + 1, y).sin();
      };
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor loss = Checkpoint(level, size_t{0}, x).sum();
  EXPECT_THAT(runs, Each(1));
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THAT(runs, ElementsAre(2, 3, 4));
  EXPECT_THAT(updates, Each(1));
  loss.backward();
  EXPECT_THAT(runs, ElementsAre(2, 3, 4));
}

// What a module with running statistics does.
struct RunningMean {
  at::Tensor operator()(const at::Tensor& t) {
    if (!IsRecomputing()) {
      const c10::NoGradGuard no_grad;
      mean.lerp_(t.mean(), 0.1);
    }
    return (t - t.mean()).exp();
  }
  at::Tensor mean = at::zeros({});
};

TEST_F(CheckpointTest, RunningStatisticsAreUpdatedOnceAStep) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const auto run = [&](Mode mode) {
    RunningMean layer;
    for (int step = 0; step < 3; ++step) Apply(mode, layer, x).sum().backward();
    Tensors result = TakeGradients({x});
    result.push_back(layer.mean);
    return result;
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, OneTwoAndThreeBlocksEachCheckpointedOrNotAgree) {
  const at::Tensor x = at::randn({4, 8});
  for (size_t num_blocks = 1; num_blocks <= 3; ++num_blocks) {
    const std::vector<Block> blocks(num_blocks, Block(8, 16));
    const Tensors plain = Gradients(Mode::kPlain, blocks, x);
    for (unsigned chosen = 0; chosen < 1u << num_blocks; ++chosen) {
      at::Tensor y = x;
      for (size_t i = 0; i < num_blocks; ++i) {
        const bool is_chosen = (chosen >> i & 1) != 0;
        y = Apply(is_chosen ? Mode::kCheckpointed : Mode::kPlain, blocks[i], y);
      }
      Loss(y).backward();
      // The blocks are copies that share their parameters.
      const Tensors once = TakeGradients(blocks[0].parameters);
      ExpectSameBits(once, {plain.begin(), plain.begin() + 4});
    }
  }
}

}  // namespace
}  // namespace trainsys
