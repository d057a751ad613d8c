#include "trainsys/budget/published_compute.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainsys/budget/architecture.h"

namespace trainsys {
namespace {

// Llama 2 of 13B and 70B: 32,000 tokens, 4,096 positions.
ModelShape Llama2(int64_t hidden, int64_t layers, int64_t heads,
                  int64_t kv_heads, int64_t ffn) {
  ModelShape m;
  m.vocab = 32000;
  m.context = 4096;
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_dim = hidden / heads;
  m.ffn = ffn;
  return m;
}

double MfuPercent(const ModelShape& m, double tokens_per_s) {
  const TokenFlops token = {
      static_cast<double>(ParameterCount(m)), static_cast<double>(m.layers),
      static_cast<double>(m.hidden), static_cast<double>(m.context)};
  constexpr double kA100 = 312e12;
  return 100 * Mfu(token, tokens_per_s, kA100);
}

// torchtitan, docs/performance.md, 64 A100: tokens a second and MFU.
TEST(PublishedComputeTest, MfuOfEightTorchtitanRows) {
  struct Row {
    ModelShape shape;
    double tokens_per_s, percent;
  };
  const ModelShape l8 = PresetShape("llama3-8b");
  const ModelShape l70 = PresetShape("llama3-70b");
  const ModelShape l2_13 = Llama2(5120, 40, 40, 40, 13824);
  const ModelShape l2_70 = Llama2(8192, 80, 64, 8, 28672);
  for (const Row& row : std::vector<Row>{{l8, 2904, 56.8},
                                         {l8, 2973, 58.2},
                                         {l70, 331, 51.7},
                                         {l2_13, 2162, 61.1},
                                         {l2_13, 1914, 54.1},
                                         {l2_13, 1904, 53.8},
                                         {l2_70, 355, 50.8},
                                         {l2_70, 353, 50.5}}) {
    EXPECT_NEAR(MfuPercent(row.shape, row.tokens_per_s), row.percent, 0.1)
        << row.tokens_per_s << " tokens/s";
  }
}

TEST(PublishedComputeTest, RecomputationRatios) {
  EXPECT_DOUBLE_EQ(FullRecomputeFlopRatio(), 4.0 / 3);
  EXPECT_NEAR(SelectiveRecomputeFlopRatio(2048, 6144), 1.0556, 5e-5);
}

TEST(PublishedComputeTest, SixFlopsAParameterAndToken) {
  EXPECT_DOUBLE_EQ(TrainingFlops(1e9, 2e9), 12e18);
}

}  // namespace
}  // namespace trainsys
