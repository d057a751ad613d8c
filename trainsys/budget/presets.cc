// The named shapes of architecture.h, each as its authors published it.
#include <array>

#include "collectives/errors.h"
#include "trainsys/budget/architecture.h"

namespace trainsys {
namespace {

// Radford et al. 2019; the vocabulary is 50,000 merges, 256 bytes and one end.
ModelShape Gpt2(const char* name, int64_t hidden, int64_t layers,
                int64_t heads) {
  ModelShape m;
  m.name = name;
  m.family = ModelFamily::kGpt2;
  m.vocab = 50257;
  m.context = 1024;
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = heads;
  m.head_dim = hidden / heads;
  m.ffn = 4 * hidden;
  m.has_tied_head = true;
  return m;
}

// The paper gives 7.5e9 parameters and no shape. 36 layers of 4096, and a
// vocabulary that makes up the difference.
ModelShape ZeroPaper() {
  ModelShape m = Gpt2("zero-7.5b", 4096, 36, 32);
  m.vocab = 60089;
  return m;
}

ModelShape Llama(const char* name, int64_t hidden, int64_t layers,
                 int64_t heads, int64_t kv_heads, int64_t ffn) {
  ModelShape m;
  m.name = name;
  m.context = 8192;
  m.hidden = hidden;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_dim = hidden / heads;
  m.ffn = ffn;
  return m;
}

// Their config.json: 49,152 tokens, tied.
ModelShape SmolLm2(ModelShape m) {
  m.vocab = 49152;
  m.has_tied_head = true;
  return m;
}

// Dubey et al. 2024, table 3: 128,256 tokens, not tied.
ModelShape Llama3(ModelShape m) {
  m.vocab = 128256;
  return m;
}

std::array<ModelShape, 10> Presets() {
  return {Gpt2("gpt2", 768, 12, 12),
          Gpt2("gpt2-medium", 1024, 24, 16),
          Gpt2("gpt2-large", 1280, 36, 20),
          Gpt2("gpt2-xl", 1600, 48, 25),
          SmolLm2(Llama("smollm2-135m", 576, 30, 9, 3, 1536)),
          SmolLm2(Llama("smollm2-360m", 960, 32, 15, 5, 2560)),
          SmolLm2(Llama("smollm2-1.7b", 2048, 24, 32, 32, 8192)),
          Llama3(Llama("llama3-8b", 4096, 32, 32, 8, 14336)),
          Llama3(Llama("llama3-70b", 8192, 80, 64, 8, 28672)),
          ZeroPaper()};
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const ModelShape& shape : Presets()) names.push_back(shape.name);
  return names;
}

bool IsPreset(const std::string& name) {
  for (const ModelShape& shape : Presets()) {
    if (shape.name == name) return true;
  }
  return false;
}

ModelShape PresetShape(const std::string& name) {
  std::string known;
  for (const ModelShape& shape : Presets()) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  throw collectives::InvalidArgument("model is '" + name +
                                     "', expected one of " + known);
}

}  // namespace trainsys
