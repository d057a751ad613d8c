#include "trainsys/train/segment_runner.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "collectives/recomputing.h"
#include "trainsys/model/transformer_lm.h"

namespace trainsys {
namespace {

TransformerConfig Tiny(int64_t layers) {
  return {.vocab = 11,
          .context = 9,
          .dim = 12,
          .layers = layers,
          .heads = 3,
          .ffn = 10};
}

// The loss, then every parameter's gradient.
std::vector<at::Tensor> LossAndGradients(const TransformerConfig& config,
                                         SegmentRunner run_segment) {
  at::manual_seed(1);
  TransformerLM model(config, std::move(run_segment));
  const at::Tensor tokens = at::randint(config.vocab, {2, 9}, at::kLong);
  const at::Tensor loss = model.Loss(tokens, tokens.flip(1));
  loss.backward();
  std::vector<at::Tensor> all = {loss.detach()};
  for (const at::Tensor& p : model.parameters()) all.push_back(p.grad());
  return all;
}

void ExpectTheBitsOfNone(const TransformerConfig& config,
                         const RecomputePlan& plan) {
  const auto expected = LossAndGradients(config, {});
  const auto actual = LossAndGradients(config, RunnerFor(plan));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i].defined()) << Describe(plan) << ", tensor " << i;
    EXPECT_TRUE(at::equal(actual[i], expected[i]))
        << Describe(plan) << ", tensor " << i;
  }
}

TEST(SegmentRunnerTest, EveryPolicyGivesTheBitsOfNoneForOneToThreeBlocks) {
  for (int64_t layers = 1; layers <= 3; ++layers) {
    for (const char* policy :
         {"none", "selective", "full", "every-1", "every-2", "every-3"}) {
      ExpectTheBitsOfNone(Tiny(layers), PlanOfPolicy(policy, layers));
    }
  }
}

TEST(SegmentRunnerTest, AMixOfKindsGivesTheBitsOfNone) {
  constexpr BlockRecompute kNone = BlockRecompute::kNone;
  constexpr BlockRecompute kSelective = BlockRecompute::kSelective;
  constexpr BlockRecompute kFull = BlockRecompute::kFull;
  ExpectTheBitsOfNone(Tiny(2), {kFull, kSelective});
  ExpectTheBitsOfNone(Tiny(3), {kFull, kSelective, kNone});
  ExpectTheBitsOfNone(Tiny(3), {kNone, kFull, kSelective});
  ExpectTheBitsOfNone(Tiny(3), {kSelective, kNone, kFull});
}

TEST(SegmentRunnerTest, FiveHundredRecomputedBlocksRun) {
  const TransformerConfig config = {
      .vocab = 5, .context = 9, .dim = 4, .layers = 500, .heads = 2, .ffn = 4};
  ExpectTheBitsOfNone(config, PlanOfPolicy("full", config.layers));
}

// What a part ran again in backward.
std::vector<std::pair<ModelPart, int64_t>> SecondRuns(
    const RecomputePlan& plan) {
  std::vector<std::pair<ModelPart, int64_t>> again;
  const SegmentRunner run = RunnerFor(plan);
  const SegmentRunner watching = [&](ModelPart part, int64_t block,
                                     const SegmentFunction& fn,
                                     const std::vector<at::Tensor>& inputs) {
    const SegmentFunction noting = [&again, fn, part,
                                    block](const std::vector<at::Tensor>& in) {
      if (collectives::IsRecomputing()) again.emplace_back(part, block);
      return fn(in);
    };
    return run(part, block, noting, inputs);
  };
  LossAndGradients(Tiny(static_cast<int64_t>(plan.size())), watching);
  return again;
}

TEST(SegmentRunnerTest, OnlyWhatThePlanSaysRunsAgainTheLastBlockFirst) {
  const std::vector<std::pair<ModelPart, int64_t>> expected = {
      {ModelPart::kAttentionCore, 2},
      {ModelPart::kBlock, 0},
      {ModelPart::kAttentionCore, 0}};
  EXPECT_EQ(SecondRuns({BlockRecompute::kFull, BlockRecompute::kNone,
                        BlockRecompute::kSelective}),
            expected);
}

TEST(SegmentRunnerTest, APlanThatLacksABlockIsOneClearLine) {
  try {
    LossAndGradients(Tiny(3), RunnerFor(PlanOfPolicy("full", 2)));
    FAIL() << "not refused";
  } catch (const collectives::InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("runs block 2"));
  }
}

}  // namespace
}  // namespace trainsys
