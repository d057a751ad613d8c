#include "trainsys/budget/published_activations.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace trainsys {
namespace {

using enum LayerMemory;

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct PaperModel {
  std::string name;
  LayerSizes sizes;
  double layers, p, m;
  double none_gib, selective_gib, states_gib;
  std::array<double, 4> percent;  // SP, selective, both, full
};

// Korthikanti et al., table 3 and figure 7; GiB as Calculon validates them.
std::vector<PaperModel> PaperModels() {
  const auto sizes = [](double h, double a, double b) {
    return LayerSizes{.s = 2048, .b = b, .h = h, .a = a, .t = 8};
  };
  return {{"22B",
           sizes(6144, 64, 4),
           48,
           1,
           1,
           59.25,
           9.56,
           45.56,
           {66.84, 49.42, 16.18, 7.64}},
          {"175B",
           sizes(12288, 96, 1),
           96,
           8,
           3,
           66.84,
           12.35,
           45.56,
           {62.04, 56.53, 18.49, 8.71}},
          {"530B",
           sizes(20480, 128, 1),
           105,
           35,
           3,
           114.02,
           23.08,
           31.64,
           {58.31, 62.04, 20.27, 9.42}},
          {"1T",
           sizes(25600, 160, 1),
           128,
           64,
           1,
           131.25,
           26.56,
           32.96,
           {58.31, 62.04, 20.27, 9.42}}};
}

double StageGib(const PaperModel& model, LayerMemory memory) {
  return KorthikantiLayerBytes(model.sizes, memory) * model.layers *
         FirstStageFactor(model.p, model.m) / kGiB;
}

TEST(PublishedActivationsTest, KorthikantiFirstStageOfFourModels) {
  for (const PaperModel& model : PaperModels()) {
    SCOPED_TRACE(model.name);
    EXPECT_NEAR(StageGib(model, kTensor), model.none_gib,
                model.none_gib * 5e-4);
    EXPECT_NEAR(StageGib(model, kTensorSequenceSelective), model.selective_gib,
                model.selective_gib * 5e-4);
    EXPECT_NEAR(KorthikantiStateBytes(model.layers, model.sizes.h,
                                      model.sizes.t, model.p) /
                    kGiB,
                model.states_gib, model.states_gib * 5e-4);
  }
}

TEST(PublishedActivationsTest, KorthikantiFigureSevenWithinAFifthOfAPoint) {
  constexpr std::array kMemories = {kTensorSequence, kTensorSelective,
                                    kTensorSequenceSelective, kFull};
  for (const PaperModel& model : PaperModels()) {
    const double none = KorthikantiLayerBytes(model.sizes, kTensor);
    for (size_t i = 0; i < kMemories.size(); ++i) {
      EXPECT_NEAR(100 * KorthikantiLayerBytes(model.sizes, kMemories[i]) / none,
                  model.percent[i], 0.2)
          << model.name << ", column " << i;
    }
  }
}

TEST(PublishedActivationsTest, WithoutTensorParallelismTheVariantsAgree) {
  const LayerSizes one = {.s = 1024, .b = 2, .h = 768, .a = 12, .t = 1};
  EXPECT_DOUBLE_EQ(KorthikantiLayerBytes(one, kTensor),
                   KorthikantiLayerBytes(one, kNone));
  EXPECT_DOUBLE_EQ(KorthikantiLayerBytes(one, kTensorSequence),
                   KorthikantiLayerBytes(one, kNone));
  EXPECT_DOUBLE_EQ(KorthikantiLayerBytes(one, kTensorSelective),
                   KorthikantiLayerBytes(one, kTensorSequenceSelective));
  EXPECT_DOUBLE_EQ(KorthikantiLayerBytes(one, kFullSharded),
                   KorthikantiLayerBytes(one, kFull));
}

TEST(PublishedActivationsTest, MegatronIsKorthikantiSelectiveAtFfn4h) {
  const LayerSizes sizes = {.s = 2048, .b = 4, .h = 6144, .a = 64, .t = 8};
  EXPECT_DOUBLE_EQ(MegatronLayerBytes(sizes, 4 * 6144, true),
                   KorthikantiLayerBytes(sizes, kTensorSequenceSelective));
  EXPECT_DOUBLE_EQ(MegatronLayerBytes(sizes, 4 * 6144, false),
                   KorthikantiLayerBytes(sizes, kTensorSelective));
}

TEST(PublishedActivationsTest, MegatronEmbeddingAndOutput) {
  const LayerSizes sizes = {.s = 10, .b = 2, .h = 16, .a = 4, .t = 1};
  EXPECT_DOUBLE_EQ(MegatronEmbeddingBytes(sizes, 3), 8 * 60 + 60 * 16);
  EXPECT_DOUBLE_EQ(MegatronOutputBytes(sizes, 48), 4 * 20 * (16 + 48));
}

TEST(PublishedActivationsTest, EleutherCountsThirtyFourWithCheckpointing) {
  const LayerSizes sizes = {.s = 2048, .b = 4, .h = 6144, .a = 64, .t = 1};
  EXPECT_DOUBLE_EQ(EleutherActivationBytes(sizes, 48, true),
                   48 * 34.0 * 2048 * 4 * 6144);
  EXPECT_DOUBLE_EQ(EleutherActivationBytes(sizes, 48, false),
                   48 * KorthikantiLayerBytes(sizes, kNone));
}

}  // namespace
}  // namespace trainsys
