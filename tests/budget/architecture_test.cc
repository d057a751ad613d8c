#include "trainsys/budget/architecture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

TEST(ArchitectureTest, PresetsHaveTheirPublishedParameters) {
  struct Row {
    const char* name;
    int64_t parameters;
    size_t tensors;
  };
  for (const Row& row : std::vector<Row>{{"gpt2", 124'439'808, 148},
                                         {"gpt2-medium", 354'823'168, 292},
                                         {"gpt2-large", 774'030'080, 436},
                                         {"gpt2-xl", 1'557'611'200, 580},
                                         {"smollm2-135m", 134'515'008, 272},
                                         {"smollm2-360m", 361'821'120, 290},
                                         {"smollm2-1.7b", 1'711'376'384, 218},
                                         {"llama3-8b", 8'030'261'248, 291},
                                         {"llama3-70b", 70'553'706'496, 723},
                                         {"zero-7.5b", 7'500'001'280, 436}}) {
    const ModelShape shape = PresetShape(row.name);
    EXPECT_EQ(ParameterCount(shape), row.parameters) << row.name;
    EXPECT_EQ(ParameterTensors(shape).size(), row.tensors) << row.name;
    EXPECT_NO_THROW(Validate(shape, row.name));
    EXPECT_TRUE(IsPreset(row.name));
  }
  EXPECT_EQ(PresetNames().size(), 10u);
}

TEST(ArchitectureTest, TensorsAreInRegistrationOrder) {
  const auto llama = ParameterTensors(PresetShape("llama3-8b"));
  EXPECT_EQ(llama.front().name, "embed_tokens.weight");
  EXPECT_EQ(llama[1].name, "layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(llama[2].elems, 4096 * 1024) << "grouped keys";
  EXPECT_EQ(llama[8].name, "layers.0.input_layernorm.weight");
  EXPECT_EQ(llama[10].name, "layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(llama.back().name, "lm_head.weight");
  const auto tied = ParameterTensors(PresetShape("smollm2-360m"));
  EXPECT_EQ(tied.back().name, "norm.weight") << "no head of its own";
  const auto gpt2 = ParameterTensors(PresetShape("gpt2"));
  EXPECT_EQ(gpt2[1].elems, 1024 * 768);
  EXPECT_EQ(gpt2.back().name, "ln_f.bias");
}

TEST(ArchitectureTest, AnUnknownPresetIsRefusedWithTheKnownOnes) {
  EXPECT_FALSE(IsPreset("gpt5"));
  try {
    PresetShape("gpt5");
    FAIL() << "accepted";
  } catch (const collectives::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("zero-7.5b"), std::string::npos);
  }
}

}  // namespace
}  // namespace trainsys
