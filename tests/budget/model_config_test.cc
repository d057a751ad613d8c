#include "trainsys/budget/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using nlohmann::json;

json SmolLm2() {
  return {{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 49152},      {"max_position_embeddings", 8192},
          {"hidden_size", 960},       {"intermediate_size", 2560},
          {"num_hidden_layers", 32},  {"num_attention_heads", 15},
          {"num_key_value_heads", 5}, {"rms_norm_eps", 1e-5},
          {"rope_scaling", nullptr},  {"tie_word_embeddings", true}};
}

json Gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 1024},
          {"n_embd", 768},        {"n_layer", 12},       {"n_head", 12},
          {"n_inner", nullptr}};
}

int64_t Count(const json& config) {
  return ParameterCount(ShapeFromConfig(config.dump(), "config.json"));
}

TEST(ModelConfigTest, ALlamaConfigGivesThePresetsTensors) {
  const ModelShape shape = ShapeFromConfig(SmolLm2().dump(), "config.json");
  EXPECT_EQ(ElemsOf(ParameterTensors(shape)),
            ElemsOf(ParameterTensors(PresetShape("smollm2-360m"))));
  EXPECT_EQ(shape.context, 8192);
}

TEST(ModelConfigTest, AGpt2ConfigGivesThePresetsTensors) {
  const ModelShape shape = ShapeFromConfig(Gpt2().dump(), "config.json");
  EXPECT_EQ(ElemsOf(ParameterTensors(shape)),
            ElemsOf(ParameterTensors(PresetShape("gpt2"))));
}

TEST(ModelConfigTest, AbsentKeysHaveTheirDefaults) {
  json config = SmolLm2();
  config.erase("tie_word_embeddings");
  EXPECT_EQ(Count(config), 361'821'120 + 49152 * 960) << "a head of its own";
  config = SmolLm2();
  config.erase("num_key_value_heads");
  EXPECT_EQ(Count(config), 361'821'120 + 32 * 2 * 960 * 640);
}

TEST(ModelConfigTest, BiasesAndHeadWidthsCount) {
  json config = SmolLm2();
  config["attention_bias"] = true;
  EXPECT_EQ(Count(config), 361'821'120 + 32 * (960 + 2 * 320 + 960));
  config = SmolLm2();
  config["mlp_bias"] = true;
  EXPECT_EQ(Count(config), 361'821'120 + 32 * (2 * 2560 + 960));
  config = SmolLm2();
  config["model_type"] = "qwen2";
  EXPECT_EQ(Count(config), 361'821'120 + 32 * (960 + 2 * 320));
  config = SmolLm2();
  config["head_dim"] = 128;
  EXPECT_EQ(Count(config), 361'821'120 + 32 * 64 * 960 * 2 * (15 + 5));
}

void ExpectRefused(const std::string& text, const std::string& words) {
  try {
    ShapeFromConfig(text, "my/config.json");
    ADD_FAILURE() << "accepted: " << words;
  } catch (const collectives::InvalidArgument& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(words), std::string::npos) << what;
    EXPECT_EQ(what.find("my/config.json"), 0u) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(ModelConfigTest, WhatIsNoConfigIsRefused) {
  ExpectRefused("", "no JSON object");
  ExpectRefused("[1, 2]", "no JSON object");
  ExpectRefused("{\"vocab_size\": ", "no JSON object");
  ExpectRefused("{}", "'vocab_size' is missing, expected a whole number");
}

TEST(ModelConfigTest, AWrongKeyIsNamedWithWhatWasExpected) {
  const auto with = [](const char* key, const json& value) {
    json config = SmolLm2();
    config[key] = value;
    return config.dump();
  };
  ExpectRefused(with("model_type", "mixtral"),
                "'model_type' is \"mixtral\", expected llama, mistral, qwen2 "
                "or gpt2");
  ExpectRefused(with("hidden_size", "960"), "'hidden_size' is \"960\"");
  ExpectRefused(with("hidden_size", 960.5), "'hidden_size' is 960.5");
  ExpectRefused(with("hidden_size", -960), "width is -960");
  ExpectRefused(with("num_attention_heads", 0), "number of heads is 0");
  ExpectRefused(with("num_key_value_heads", 4), "multiple of the 4");
  ExpectRefused(with("num_attention_heads", 25), "width 960 on 25 heads");
  ExpectRefused(with("num_hidden_layers", 1'000'000), "1000000 layers");
  ExpectRefused(with("tie_word_embeddings", "yes"), "expected true or false");
  ExpectRefused(with("vocab_size", uint64_t{1} << 63), "vocab");
  ExpectRefused(with("intermediate_size", 900'000'000'000), "feed-forward");
}

TEST(ModelConfigTest, SizesThatWouldOverflowTogetherAreRefused) {
  json config = SmolLm2();
  config["hidden_size"] = 900'000'000;
  config["num_attention_heads"] = 1;
  config["num_key_value_heads"] = 1;
  config["intermediate_size"] = 900'000'000;
  ExpectRefused(config.dump(), "more than 1e14 parameters");
}

}  // namespace
}  // namespace trainsys
