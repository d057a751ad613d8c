// The budget of the model's activations equals what autograd saves.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "collectives/recomputing.h"
#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/train/segment_runner.h"

namespace trainsys {
namespace {

struct Measured {
  std::vector<int64_t> blocks;  // what each block's first run left
  int64_t after_forward = 0;
  int64_t peak = 0;
  int64_t after_backward = 0;
};

// Runs `run` and takes note of what each block left.
SegmentRunner Measuring(SegmentRunner run,
                        const std::unique_ptr<SavedBytesScope>& saved,
                        std::vector<int64_t>& blocks) {
  return [run = std::move(run), &saved, &blocks](
             ModelPart part, int64_t block, const SegmentFunction& fn,
             const std::vector<at::Tensor>& inputs) {
    const int64_t before = saved->distinct_bytes();
    at::Tensor output = run(part, block, fn, inputs);
    if (part == ModelPart::kBlock && !collectives::IsRecomputing()) {
      blocks.push_back(saved->distinct_bytes() - before);
    }
    return output;
  };
}

Measured Measure(const TransformerConfig& config, const ForwardShape& shape,
                 const RecomputePlan& plan) {
  Measured measured;
  std::unique_ptr<SavedBytesScope> saved;
  TransformerLM model(config,
                      Measuring(RunnerFor(plan), saved, measured.blocks));
  if (shape.element_bytes == 8) model.to(at::kDouble);
  const auto random_tokens = [&] {  // [B, T]
    return at::randint(config.vocab, {shape.rows, shape.positions}, at::kLong);
  };
  const at::Tensor tokens = random_tokens(), targets = random_tokens();
  std::vector<at::Tensor> apart = model.parameters();
  for (const at::Tensor& t : model.constants()) apart.push_back(t);
  apart.insert(apart.end(), {tokens, targets});
  saved = std::make_unique<SavedBytesScope>(apart);
  const at::Tensor loss = model.Loss(tokens, targets);
  measured.after_forward = saved->distinct_bytes();
  loss.backward();
  measured.after_backward = saved->distinct_bytes();
  measured.peak = saved->peak_distinct_bytes();
  return measured;
}

void ExpectAgreement(const TransformerConfig& config, ForwardShape shape,
                     const RecomputePlan& plan) {
  shape.libtorch = kThisLibtorch;
  SCOPED_TRACE(::testing::Message()
               << "B " << shape.rows << ", T " << shape.positions << ", D "
               << config.dim << ", H " << config.heads << ", F " << config.ffn
               << ", V " << config.vocab << ", L " << config.layers << ", "
               << shape.element_bytes << " bytes, " << Describe(plan));
  const Measured measured = Measure(config, shape, plan);
  const SavedBytes budget = SavedAfterForward(config, shape, plan);
  EXPECT_EQ(measured.blocks, budget.blocks);
  EXPECT_EQ(measured.after_forward, budget.total());
  EXPECT_EQ(measured.peak, PeakSavedBytes(config, shape, plan));
  EXPECT_EQ(measured.after_backward, 0);
}

// Every plan of one to three blocks.
std::vector<RecomputePlan> Plans() {
  std::vector<RecomputePlan> plans = {{}};
  for (size_t i = 0; plans[i].size() < 3; ++i) {
    for (const BlockRecompute kind :
         {BlockRecompute::kNone, BlockRecompute::kSelective,
          BlockRecompute::kFull}) {
      RecomputePlan longer = plans[i];
      longer.push_back(kind);
      plans.push_back(std::move(longer));
    }
  }
  plans.erase(plans.begin());
  return plans;
}

struct AgreementCase {
  TransformerConfig config;
  ForwardShape shape;
};

class AgreementTest : public ::testing::TestWithParam<AgreementCase> {};

TEST_P(AgreementTest, EveryPlanSavesTheBytesOfItsBudget) {
  auto [config, shape] = GetParam();
  for (const RecomputePlan& plan : Plans()) {
    config.layers = static_cast<int64_t>(plan.size());
    for (const int64_t element_bytes : {4, 8}) {
      shape.element_bytes = element_bytes;
      ExpectAgreement(config, shape, plan);
    }
  }
}

// Each number as small as it gets, odd and even, and each part of the model as
// the one that outweighs the others.
INSTANTIATE_TEST_SUITE_P(
    Shapes, AgreementTest,
    ::testing::Values(
        AgreementCase{
            {.vocab = 2, .context = 1, .dim = 2, .heads = 1, .ffn = 1}, {1, 1}},
        AgreementCase{
            {.vocab = 1, .context = 9, .dim = 4, .heads = 1, .ffn = 3}, {1, 9}},
        AgreementCase{
            {.vocab = 7, .context = 5, .dim = 12, .heads = 3, .ffn = 10},
            {3, 1}},
        AgreementCase{
            {.vocab = 7, .context = 8, .dim = 12, .heads = 3, .ffn = 10},
            {1, 2}},
        AgreementCase{
            {.vocab = 7, .context = 8, .dim = 12, .heads = 3, .ffn = 10},
            {2, 3}},
        AgreementCase{
            {.vocab = 7, .context = 8, .dim = 12, .heads = 6, .ffn = 10},
            {3, 8}},
        AgreementCase{
            {.vocab = 7, .context = 64, .dim = 8, .heads = 4, .ffn = 1},
            {2, 63}},
        AgreementCase{
            {.vocab = 300, .context = 16, .dim = 4, .heads = 2, .ffn = 4},
            {2, 16}},
        AgreementCase{
            {.vocab = 2, .context = 16, .dim = 4, .heads = 1, .ffn = 300},
            {2, 15}}));

TEST(AgreementTest, TheDefaultModelWithEachPolicy) {
  for (const char* policy : {"none", "selective", "full", "every-2"}) {
    ExpectAgreement({}, {4, 256, 4}, PlanOfPolicy(policy, 4));
  }
}

}  // namespace
}  // namespace trainsys
