// Shapes of language models: which tensors they have. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainsys {

enum class ModelFamily {
  kGpt2,   // LayerNorm, learned positions, GELU, biases, dropout
  kLlama,  // RMSNorm, rotary positions, grouped queries, SwiGLU
};

struct ModelShape {
  std::string name;
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocab = 0;
  int64_t context = 0;  // positions it was made for
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  bool has_tied_head = false;  // the output layer is the embedding
  // Of a Llama family: most have none.
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // attention's output projection
  bool has_ffn_bias = false;

  int64_t query_width() const { return heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }
};

struct TensorSize {
  std::string name;
  int64_t elems = 0;
};

// In registration order, a tied head left out; names as in the published
// checkpoints, shortened to what tells them apart.
std::vector<TensorSize> ParameterTensors(const ModelShape& shape);
std::vector<int64_t> ElemsOf(const std::vector<TensorSize>& tensors);

int64_t ParameterCount(const ModelShape& shape);

// Errors: InvalidArgument for a size below 1, heads that are no multiple of
// kv_heads, or more than 1e14 parameters. `source`: a name for the message.
void Validate(const ModelShape& shape, const std::string& source);

// gpt2, gpt2-medium, gpt2-large, gpt2-xl, smollm2-135m, smollm2-360m,
// smollm2-1.7b, llama3-8b, llama3-70b, zero-7.5b. The last is the example of
// the ZeRO paper, which gives a size and no shape: ours is a GPT-2 with
// 7,500,001,280 parameters.
std::vector<std::string> PresetNames();
bool IsPreset(const std::string& name);
// Errors: InvalidArgument for a name that is none of them.
ModelShape PresetShape(const std::string& name);

}  // namespace trainsys
