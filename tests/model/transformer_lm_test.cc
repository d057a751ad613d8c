#include "trainsys/model/transformer_lm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "tests/model/transformer_reference.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

constexpr TransformerConfig kTiny = {
    .vocab = 11, .context = 9, .dim = 12, .layers = 2, .heads = 3, .ffn = 10};

std::shared_ptr<TransformerLM> MakeTiny(at::ScalarType dtype,
                                        SegmentRunner run_segment = {}) {
  at::manual_seed(1);
  auto model = std::make_shared<TransformerLM>(kTiny, std::move(run_segment));
  // Weights that are large enough for every term to show in the logits.
  at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    parameter.add_(at::randn_like(parameter).mul_(0.4));
  }
  model->to(dtype);
  return model;
}

// [B, T]
at::Tensor RandomTokens(int64_t rows, int64_t length = kTiny.context) {
  return at::randint(kTiny.vocab, {rows, length}, at::kLong);
}

double LargestDifference(const at::Tensor& logits,
                         const std::vector<std::vector<double>>& expected) {
  double largest = 0;
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t v = 0; v < expected[t].size(); ++v) {
      largest = std::max(
          largest, std::abs(logits[t][v].item<double>() - expected[t][v]));
    }
  }
  return largest;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const collectives::InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TransformerLMTest, LogitsAreThoseOfTheFormulasInLoops) {
  const auto model = MakeTiny(at::kDouble);
  const auto single = MakeTiny(at::kFloat);
  for (int64_t length : {int64_t{1}, int64_t{4}, kTiny.context}) {
    const at::Tensor tokens = RandomTokens(2, length);
    const at::Tensor logits = model->Forward(tokens);  // [B, T, V]
    EXPECT_EQ(logits.scalar_type(), at::kDouble);
    EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, length, kTiny.vocab}));
    for (int64_t row = 0; row < 2; ++row) {
      const at::Tensor line = tokens[row];
      const auto expected = ReferenceLogits(
          *model, kTiny,
          {line.data_ptr<int64_t>(), line.data_ptr<int64_t>() + length});
      EXPECT_LT(LargestDifference(logits[row], expected), 1e-13);
      EXPECT_LT(LargestDifference(single->Forward(tokens)[row], expected),
                1e-4);
    }
  }
}

TEST(TransformerLMTest, LossIsTheMeanOfMinusLogProbability) {
  const auto model = MakeTiny(at::kDouble);
  const at::Tensor tokens = RandomTokens(3), targets = RandomTokens(3);
  const at::Tensor log_p = at::log_softmax(model->Forward(tokens), -1);
  const at::Tensor expected = -log_p.gather(2, targets.unsqueeze(2)).mean();
  EXPECT_NEAR(model->Loss(tokens, targets).item<double>(),
              expected.item<double>(), 1e-14);
}

TEST(TransformerLMTest, ALaterTokenChangesNoEarlierLogit) {
  const auto model = MakeTiny(at::kFloat);
  const at::Tensor tokens = RandomTokens(1);
  const at::Tensor before = model->Forward(tokens)[0];  // [T, V]
  for (int64_t t = 0; t < kTiny.context; ++t) {
    at::Tensor changed = tokens.clone();
    changed[0][t] = (changed[0][t] + 1).remainder(kTiny.vocab);
    const at::Tensor after = model->Forward(changed)[0];
    EXPECT_TRUE(at::equal(after.narrow(0, 0, t), before.narrow(0, 0, t)));
    for (int64_t later = t; later < kTiny.context; ++later) {
      EXPECT_FALSE(at::equal(after[later], before[later])) << later;
    }
  }
}

TEST(TransformerLMTest, ParametersAreAsManyAsTheFormulaSays) {
  EXPECT_EQ(ParameterCount({}), 918'656);
  for (const TransformerConfig& config : {TransformerConfig{}, kTiny}) {
    int64_t count = 0;
    for (const auto& p : TransformerLM(config).parameters()) count += p.numel();
    EXPECT_EQ(count, ParameterCount(config));
  }
}

TEST(TransformerLMTest, ParametersHaveTheNamesSizesAndOrderOfTheList) {
  constexpr TransformerConfig kDeep = {
      .vocab = 7, .context = 3, .dim = 4, .layers = 12, .heads = 2, .ffn = 5};
  for (const TransformerConfig& config : {TransformerConfig{}, kTiny, kDeep}) {
    const auto parameters = TransformerLM(config).named_parameters().items();
    const std::vector<NamedSize> sizes = ParameterSizes(config);
    ASSERT_EQ(parameters.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(parameters[i].key(), sizes[i].name);
      EXPECT_EQ(parameters[i].value().numel(), sizes[i].elements);
    }
  }
}

TEST(TransformerLMTest, ParametersStandInTheOrderOfUse) {
  const auto names = TransformerLM(kTiny).named_parameters().keys();
  EXPECT_EQ(names.front(), "embedding");
  EXPECT_EQ(names[1], "block0.attention_norm.weight");
  EXPECT_EQ(names.back(), "output.weight");
}

TEST(TransformerLMTest, WeightsStartWithTheirStandardDeviations) {
  at::manual_seed(2);
  const TransformerLM model(TransformerConfig{});
  const auto parameters = model.named_parameters();
  const auto std_of = [&](const char* name) {
    return parameters[name].std().item<double>();
  };
  const double residual = 0.02 / std::sqrt(8.0);
  EXPECT_NEAR(std_of("embedding"), 0.02, 4e-4);
  EXPECT_NEAR(std_of("block3.attention.wq"), 0.02, 4e-4);
  EXPECT_NEAR(std_of("block3.attention.wo"), residual, 2e-4);
  EXPECT_NEAR(std_of("block0.feed_forward.w2"), residual, 2e-4);
  EXPECT_NEAR(std_of("output.weight"), 0.02, 4e-4);
  EXPECT_TRUE(at::equal(parameters["final_norm.weight"], at::ones({128})));
  // So it begins by knowing nothing: log 256 nats a token.
  const at::Tensor tokens = at::randint(256, {2, 64}, at::kLong);
  EXPECT_NEAR(model.Loss(tokens, tokens).item<double>(), std::log(256), 0.2);
}

// Loss with one number of a parameter moved by `by`.
double LossMoved(const TransformerLM& model, at::Tensor parameter,
                 int64_t index, double by, const at::Tensor& tokens,
                 const at::Tensor& targets) {
  at::NoGradGuard no_grad;
  double& number = parameter.data_ptr<double>()[index];
  const double before = number;
  number += by;
  const double loss = model.Loss(tokens, targets).item<double>();
  number = before;
  return loss;
}

TEST(TransformerLMTest, GradientsAreThoseOfFiniteDifferences) {
  const auto model = MakeTiny(at::kDouble);
  const at::Tensor tokens = RandomTokens(2), targets = RandomTokens(2);
  model->Loss(tokens, targets).backward();
  constexpr double kMove = 1e-5;
  for (const auto& item : model->named_parameters()) {
    const at::Tensor gradient = item.value().grad().contiguous();
    for (int64_t index : {int64_t{0}, gradient.numel() / 2}) {
      const double up =
          LossMoved(*model, item.value(), index, kMove, tokens, targets);
      const double down =
          LossMoved(*model, item.value(), index, -kMove, tokens, targets);
      EXPECT_NEAR(gradient.data_ptr<double>()[index], (up - down) / (2 * kMove),
                  1e-8)
          << item.key() << " " << index;
    }
  }
}

TEST(TransformerLMTest, EveryPartGoesThroughTheRunnerOnceAForward) {
  std::vector<std::pair<ModelPart, int64_t>> runs;
  std::vector<size_t> num_inputs;
  const auto model = MakeTiny(
      at::kFloat, [&](ModelPart part, int64_t block, const SegmentFunction& fn,
                      const std::vector<at::Tensor>& inputs) {
        runs.emplace_back(part, block);
        num_inputs.push_back(inputs.size());
        return fn(inputs);
      });
  const at::Tensor tokens = RandomTokens(2);
  const at::Tensor logits = model->Forward(tokens);
  const std::vector<std::pair<ModelPart, int64_t>> expected = {
      {ModelPart::kBlock, 0},
      {ModelPart::kAttentionCore, 0},
      {ModelPart::kBlock, 1},
      {ModelPart::kAttentionCore, 1}};
  EXPECT_EQ(runs, expected);
  EXPECT_EQ(num_inputs, (std::vector<size_t>{1, 3, 1, 3}));
  EXPECT_TRUE(at::equal(logits, MakeTiny(at::kFloat)->Forward(tokens)));
}

TEST(TransformerLMTest, ARunnerMayKeepTheFunctionsLongerThanTheModel) {
  struct Kept {
    SegmentFunction fn;
    std::vector<at::Tensor> inputs;
    at::Tensor output;
  };
  std::vector<Kept> all;
  auto model =
      MakeTiny(at::kFloat, [&](ModelPart, int64_t, const SegmentFunction& fn,
                               const std::vector<at::Tensor>& inputs) {
        all.push_back({fn, inputs, fn(inputs)});
        return all.back().output;
      });
  model->Forward(RandomTokens(1));
  model.reset();
  const std::vector<Kept> before = all;  // a kept block runs its core again
  for (const Kept& kept : before) {
    EXPECT_TRUE(at::equal(kept.fn(kept.inputs), kept.output));
  }
}

TEST(TransformerLMTest, TrainingOnOneRowLearnsIt) {
  const auto model = MakeTiny(at::kFloat);
  const at::Tensor tokens = RandomTokens(1), targets = RandomTokens(1);
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-2));
  const double before = model->Loss(tokens, targets).item<double>();
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    model->Loss(tokens, targets).backward();
    optimizer.step();
  }
  EXPECT_LT(model->Loss(tokens, targets).item<double>(), before / 10);
}

TEST(TransformerLMTest, ImpossibleConfigsAreOneClearLine) {
  const auto error = [](TransformerConfig config) {
    return ErrorOf([&] { TransformerLM model(config); });
  };
  EXPECT_THAT(error({.vocab = 0}), HasSubstr("vocab is 0"));
  EXPECT_THAT(error({.context = -1}), HasSubstr("context is -1"));
  EXPECT_THAT(error({.dim = 0}), HasSubstr("dim is 0"));
  EXPECT_THAT(error({.layers = 0}), HasSubstr("layers is 0"));
  EXPECT_THAT(error({.heads = 0}), HasSubstr("heads is 0"));
  EXPECT_THAT(error({.ffn = 0}), HasSubstr("ffn is 0"));
  EXPECT_THAT(error({.dim = 128, .heads = 3}), HasSubstr("multiple of 6"));
  EXPECT_THAT(error({.dim = 12, .heads = 4}), HasSubstr("multiple of 8"));
}

TEST(TransformerLMTest, ImpossibleTokensAreOneClearLine) {
  const auto model = MakeTiny(at::kFloat);
  EXPECT_THAT(
      ErrorOf([&] { model->Forward(RandomTokens(1, kTiny.context + 1)); }),
      HasSubstr("context is 9"));
  EXPECT_THAT(ErrorOf([&] { model->Forward(RandomTokens(1)[0]); }),
              HasSubstr("give [B, T] of int64"));
  EXPECT_THAT(ErrorOf([&] {
                model->Forward(at::ones({1, 2}));
              }),
              HasSubstr("of Float"));
  model->to(at::kHalf);
  EXPECT_THAT(ErrorOf([&] { model->Forward(RandomTokens(1)); }),
              HasSubstr("f32 or f64"));
}

TEST(PositionsTest, ProductsOfTurnedVectorsDependOnTheDistanceOnly) {
  constexpr int64_t kLength = 20;
  const Positions positions(kLength, /*heads=*/2, /*head_dim=*/8);
  const at::Tensor q = at::randn({1, 1, 16}, at::kDouble);
  const at::Tensor k = at::randn({1, 1, 16}, at::kDouble);
  const auto everywhere = [&](const at::Tensor& x) {  // [T, D]
    return positions.Rotate(x.repeat({1, kLength, 1}))[0];
  };
  const at::Tensor products =  // [T, T]
      everywhere(q).matmul(everywhere(k).t());
  for (int64_t t = 1; t < kLength; ++t) {
    const at::Tensor one = products.diagonal(t);
    EXPECT_LT((one - one[0]).abs().max().item<double>(), 1e-12);
    EXPECT_GT((products[0][t] - products[0][t - 1]).abs().item<double>(), 1e-6);
  }
  EXPECT_TRUE(at::allclose(products[0][0], (q * k).sum()));
}

TEST(PositionsTest, AnglesOfAnF64ModelHaveF64Precision) {
  const Positions positions(300, 1, 4);
  const at::Tensor x = at::zeros({1, 300, 4}, at::kDouble);
  x.select(2, 2).fill_(1);  // the second pair turns by t / 100
  const at::Tensor turned = positions.Rotate(x)[0][299];
  EXPECT_NEAR(turned[2].item<double>(), std::cos(2.99), 1e-15);
  EXPECT_NEAR(turned[3].item<double>(), std::sin(2.99), 1e-15);
}

TEST(PositionsTest, MaskHidesWhatComesLater) {
  const at::Tensor mask =
      Positions(5, 1, 2).CausalMask(at::zeros({1, 3, 2}));  // [T, T]
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t s = 0; s < 3; ++s) {
      EXPECT_EQ(mask[t][s].item<float>(), s <= t ? 0 : -INFINITY);
    }
  }
}

}  // namespace
}  // namespace trainsys
