#include "trainsys/budget/planned_activations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/budget/published_activations.h"

namespace trainsys {
namespace {

using enum BlockRecompute;

constexpr int64_t kS = 1024, kB = 4;

ActivationOptions Options(AttentionKernel attention) {
  return {.rows = kB, .positions = kS, .attention = attention};
}

TEST(PlannedActivationsTest, AGpt2BlockIsThePapersForm) {
  for (const char* name : {"gpt2", "gpt2-medium", "gpt2-xl"}) {
    const ModelShape m = PresetShape(name);
    const auto options = Options(AttentionKernel::kFull);
    const int64_t sbh = kS * kB * m.hidden;
    const int64_t as2b = m.heads * kS * kS * kB;
    EXPECT_EQ(BlockBytes(m, options, kNone), 34 * sbh + 5 * as2b);
    EXPECT_EQ(BlockBytes(m, options, kSelective), 34 * sbh);
    EXPECT_EQ(BlockBytes(m, options, kFull), 2 * sbh);
    const LayerSizes sizes = {.s = kS,
                              .b = kB,
                              .h = static_cast<double>(m.hidden),
                              .a = static_cast<double>(m.heads)};
    EXPECT_EQ(static_cast<double>(BlockBytes(m, options, kNone)),
              KorthikantiLayerBytes(sizes, LayerMemory::kNone));
  }
}

TEST(PlannedActivationsTest, FlashKeepsNoMatrixOfScores) {
  const ModelShape m = PresetShape("gpt2");
  EXPECT_EQ(BlockBytes(m, Options(AttentionKernel::kFlash), kNone),
            34 * kS * kB * m.hidden + 4 * m.heads * kS * kB);
}

TEST(PlannedActivationsTest, ALlamaBlockOperationByOperation) {
  const ModelShape m = PresetShape("llama3-8b");
  const auto options = Options(AttentionKernel::kFull);
  const int64_t n = kS * kB;
  // 4 of the width, 2 of the queries, 2 of the keys, 4 of the feed-forward.
  const int64_t linear = 2 * n * (4 * 4096 + 2 * 4096 + 2 * 1024 + 4 * 14336);
  EXPECT_EQ(BlockBytes(m, options, kSelective), linear);
  EXPECT_EQ(BlockBytes(m, options, kNone), linear + 2 * 32 * kS * kS * kB);
  EXPECT_EQ(BlockBytes(m, options, kFull), 2 * n * 4096);
  EXPECT_EQ(BlockBytes(m, Options(AttentionKernel::kFlash), kNone),
            linear + 4 * 32 * n);
}

TEST(PlannedActivationsTest, EmbeddingAndHeadAreMegatronsForms) {
  const ModelShape m = PresetShape("gpt2");
  const auto a = ActivationsOf(m, Options(AttentionKernel::kFull),
                               RecomputePlan(12, kNone));
  const LayerSizes sizes = {.s = kS, .b = kB, .h = 768, .a = 12};
  EXPECT_EQ(static_cast<double>(a.embedding), MegatronEmbeddingBytes(sizes, 1));
  EXPECT_EQ(static_cast<double>(a.head), MegatronOutputBytes(sizes, 50257));
  EXPECT_EQ(a.recomputed_block, 0);
}

TEST(PlannedActivationsTest, FullRecomputationHoldsOneWholeBlockInBackward) {
  const ModelShape m = PresetShape("gpt2");
  const auto options = Options(AttentionKernel::kFull);
  const auto a = ActivationsOf(m, options, RecomputePlan(12, kFull));
  EXPECT_EQ(a.blocks, 12 * 2 * kS * kB * 768);
  EXPECT_EQ(a.blocks + a.recomputed_block,
            11 * 2 * kS * kB * 768 + BlockBytes(m, options, kNone));
  EXPECT_EQ(a.Peak(),
            a.blocks + a.embedding + std::max(a.head, a.recomputed_block));
}

TEST(PlannedActivationsTest, ABlockRunAgainAfterStoredOnesAreGoneIsFree) {
  RecomputePlan plan(12, kNone);
  plan[0] = kFull;
  EXPECT_EQ(
      ActivationsOf(PresetShape("gpt2"), Options(AttentionKernel::kFull), plan)
          .recomputed_block,
      0);
}

TEST(PlannedActivationsTest, EverythingGrowsWithTheElement) {
  const ModelShape m = PresetShape("llama3-8b");
  auto options = Options(AttentionKernel::kFull);
  const int64_t bf16 = BlockBytes(m, options, kNone);
  options.elem_bytes = 4;
  EXPECT_EQ(BlockBytes(m, options, kNone), 2 * bf16);
}

void ExpectRefused(const ActivationOptions& options, const std::string& words) {
  try {
    ActivationsOf(PresetShape("gpt2"), options, RecomputePlan(12, kNone));
    ADD_FAILURE() << "accepted: " << words;
  } catch (const collectives::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
        << error.what();
  }
}

TEST(PlannedActivationsTest, WrongSizesAreRefused) {
  ExpectRefused({.rows = 0, .positions = 8}, "batch is 0");
  ExpectRefused({.rows = 1, .positions = -1}, "seq is -1");
  ExpectRefused({.rows = 1, .positions = 1025}, "expected 1024 at most");
  ExpectRefused({.rows = int64_t{1} << 60, .positions = 1024}, "1e18");
  EXPECT_THROW(ActivationsOf(PresetShape("gpt2"), {.rows = 1, .positions = 8},
                             RecomputePlan(11, kNone)),
               collectives::InvalidArgument);
}

}  // namespace
}  // namespace trainsys
