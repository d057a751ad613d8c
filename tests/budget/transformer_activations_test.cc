#include "trainsys/budget/transformer_activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "collectives/errors.h"

// That these numbers are those of the model stands in
// transformer_activations_agreement_test.cc; here they stand by themselves.

namespace trainsys {
namespace {

using ::testing::HasSubstr;

constexpr BlockRecompute kKinds[] = {
    BlockRecompute::kNone, BlockRecompute::kSelective, BlockRecompute::kFull};

TransformerConfig WithLayers(int64_t layers) {
  TransformerConfig config;
  config.layers = layers;
  return config;
}

std::vector<RecomputePlan> AllPlans(int64_t layers) {
  std::vector<RecomputePlan> plans = {{}};
  for (int64_t i = 0; i < layers; ++i) {
    std::vector<RecomputePlan> longer;
    for (const RecomputePlan& plan : plans) {
      for (const BlockRecompute kind : kKinds) {
        longer.push_back(plan);
        longer.back().push_back(kind);
      }
    }
    plans = std::move(longer);
  }
  return plans;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const collectives::InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TransformerActivationsTest, FullRecomputationKeepsBlockInputsAndHead) {
  ForwardShape shape{.rows = 4, .positions = 256, .element_bytes = 4};
  const auto saved = [&](Libtorch libtorch) {
    shape.libtorch = libtorch;
    return SavedAfterForward({}, shape, PlanOfPolicy("full", 4));
  };
  EXPECT_EQ(saved(Libtorch::k2).blocks,
            std::vector<int64_t>(4, 4 * 256 * 128 * 4));
  // x, its root, x * root, the norm, the log-probabilities, one number.
  EXPECT_EQ(saved(Libtorch::k2).head, 4 * (1024 * (3 * 128 + 1 + 256) + 1));
  // And x^2.
  EXPECT_EQ(saved(Libtorch::k1).head, 4 * (1024 * (4 * 128 + 1 + 256) + 1));
}

TEST(TransformerActivationsTest, ABlockOfTheDefaultModelAddsUpByHand) {
  ForwardShape shape{.rows = 4, .positions = 256, .element_bytes = 4};
  const auto block = [&](const char* policy, Libtorch libtorch) {
    shape.libtorch = libtorch;
    return SavedAfterForward({}, shape, PlanOfPolicy(policy, 4)).blocks[2];
  };
  const int64_t scores = 4 * 4 * (128 * 128 + 128 * 256);
  const int64_t others = 1024 * (10 * 128 + 2 + 4 * 384);
  const int64_t squares = 1024 * 2 * 128;
  EXPECT_EQ(block("none", Libtorch::k2), 4 * (others + scores));
  EXPECT_EQ(block("selective", Libtorch::k2), 4 * others);
  EXPECT_EQ(block("none", Libtorch::k1), 4 * (others + scores + squares));
  EXPECT_EQ(block("selective", Libtorch::k1), 4 * (others + squares));
}

TEST(TransformerActivationsTest, F64IsTwiceF32) {
  for (const RecomputePlan& plan : AllPlans(2)) {
    const ForwardShape f32{3, 7, 4}, f64{3, 7, 8};
    EXPECT_EQ(2 * PeakSavedBytes(WithLayers(2), f32, plan),
              PeakSavedBytes(WithLayers(2), f64, plan));
  }
}

TEST(TransformerActivationsTest, FlopsOfAFullBlockAreThoseOfItsMatrixProducts) {
  const TransformerConfig config{.dim = 4, .layers = 3, .heads = 2, .ffn = 5};
  const ForwardShape shape{.rows = 3, .positions = 1, .element_bytes = 4};
  const auto flops = [&](const char* policy) {
    return RecomputedFlops(config, shape, PlanOfPolicy(policy, 3));
  };
  // One position sees itself: a product of two numbers' width 2 a head, twice.
  const int64_t core = 3 * 2 * (2 * 2) * 2;
  const int64_t weights = 3 * 2 * (4 * 4 * 4 + 3 * 4 * 5);
  EXPECT_EQ(flops("none"), 0);
  EXPECT_EQ(flops("selective"), 3 * core);
  EXPECT_EQ(flops("full"), 3 * (core + weights));
  EXPECT_EQ(flops("every-3"), core + weights);
}

// The cheapest of all plans that fits, by trying all.
const RecomputePlan* BruteForce(const TransformerConfig& config,
                                const ForwardShape& shape, int64_t budget,
                                const std::vector<RecomputePlan>& plans) {
  const auto cost = [&](const RecomputePlan& plan) {
    return std::pair(RecomputedFlops(config, shape, plan),
                     PeakSavedBytes(config, shape, plan));
  };
  const RecomputePlan* best = nullptr;
  for (const RecomputePlan& plan : plans) {
    if (PeakSavedBytes(config, shape, plan) > budget) continue;
    if (best == nullptr || cost(plan) < cost(*best)) best = &plan;
  }
  return best;
}

struct PlanCase {
  TransformerConfig config;
  ForwardShape shape;
};

class PlanWithinTest : public ::testing::TestWithParam<PlanCase> {};

TEST_P(PlanWithinTest, IsTheCheapestOfAllPlansThatFitsAnyBudget) {
  for (int64_t layers = 1; layers <= 4; ++layers) {
    const ForwardShape shape = GetParam().shape;
    TransformerConfig config = GetParam().config;
    config.layers = layers;
    const std::vector<RecomputePlan> plans = AllPlans(layers);
    for (const RecomputePlan& any : plans) {
      const int64_t peak = PeakSavedBytes(config, shape, any);
      for (const int64_t budget : {peak - 1, peak}) {
        const RecomputePlan* best = BruteForce(config, shape, budget, plans);
        if (best == nullptr) {
          EXPECT_THROW(PlanWithin(config, shape, budget),
                       collectives::InvalidArgument);
          continue;
        }
        const RecomputePlan plan = PlanWithin(config, shape, budget);
        EXPECT_LE(PeakSavedBytes(config, shape, plan), budget);
        EXPECT_EQ(RecomputedFlops(config, shape, plan),
                  RecomputedFlops(config, shape, *best));
        EXPECT_EQ(PeakSavedBytes(config, shape, plan),
                  PeakSavedBytes(config, shape, *best));
      }
    }
  }
}

// The default model; a long context, so that the core's second run is the
// peak; a wide feed-forward; a vocabulary that outweighs the blocks.
INSTANTIATE_TEST_SUITE_P(
    Models, PlanWithinTest,
    ::testing::Values(
        PlanCase{{}, {4, 256, 4}},
        PlanCase{{.vocab = 2, .context = 4096, .dim = 8, .heads = 4, .ffn = 1},
                 {1, 4096, 4}},
        PlanCase{{.vocab = 2, .dim = 8, .heads = 1, .ffn = 500}, {1, 5, 8}},
        PlanCase{{.vocab = 50'000, .dim = 16}, {2, 33, 4}}));

TEST(PlanWithinTest, ABudgetWithoutEndRecomputesNothing) {
  EXPECT_EQ(PlanWithin({}, {}, std::numeric_limits<int64_t>::max()),
            PlanOfPolicy("none", 4));
}

TEST(PlanWithinTest, HundredsOfBlocksArePlanned) {
  const TransformerConfig config = WithLayers(300);
  const ForwardShape shape{1, 256, 4};
  const int64_t all =
      PeakSavedBytes(config, shape, PlanOfPolicy("none", config.layers));
  const RecomputePlan plan = PlanWithin(config, shape, all / 2);
  EXPECT_LE(PeakSavedBytes(config, shape, plan), all / 2);
  EXPECT_EQ(plan.front(), BlockRecompute::kFull);
  EXPECT_NE(plan.back(), BlockRecompute::kFull);
}

TEST(PlanWithinTest, ABudgetThatNothingFitsNamesWhatIsNeeded) {
  const ForwardShape shape{4, 256, 4};
  const int64_t full = PeakSavedBytes({}, shape, PlanOfPolicy("full", 4));
  EXPECT_THAT(ErrorOf([&] { PlanWithin({}, shape, 1000); }),
              HasSubstr("full recomputation needs " + std::to_string(full)));
}

TEST(TransformerActivationsTest, ImpossibleShapesAreOneClearLine) {
  const auto error = [](ForwardShape shape, size_t entries) {
    return ErrorOf([&] { PeakSavedBytes({}, shape, RecomputePlan(entries)); });
  };
  EXPECT_THAT(error({0, 1, 4}, 4), HasSubstr("0 rows"));
  EXPECT_THAT(error({1, 0, 4}, 4), HasSubstr("0 positions"));
  EXPECT_THAT(error({1, 257, 4}, 4), HasSubstr("at most 256 positions"));
  EXPECT_THAT(error({1, 1, 2}, 4), HasSubstr("2 bytes an element"));
  EXPECT_THAT(error({1, 1, 4}, 3), HasSubstr("3 entries for 4 layers"));
  EXPECT_THAT(ErrorOf([] { PlanWithin(WithLayers(0), {}, 0); }),
              HasSubstr("layers is 0"));
}

}  // namespace
}  // namespace trainsys
