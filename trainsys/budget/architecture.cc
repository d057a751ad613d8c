#include "trainsys/budget/architecture.h"

#include <fmt/core.h>

#include <initializer_list>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using Tensors = std::vector<TensorSize>;

void AddGpt2Block(const ModelShape& m, const std::string& block, Tensors& out) {
  const int64_t h = m.hidden;
  out.insert(out.end(), {{block + "ln_1.weight", h},
                         {block + "ln_1.bias", h},
                         {block + "attn.c_attn.weight", 3 * h * h},
                         {block + "attn.c_attn.bias", 3 * h},
                         {block + "attn.c_proj.weight", h * h},
                         {block + "attn.c_proj.bias", h},
                         {block + "ln_2.weight", h},
                         {block + "ln_2.bias", h},
                         {block + "mlp.c_fc.weight", h * m.ffn},
                         {block + "mlp.c_fc.bias", m.ffn},
                         {block + "mlp.c_proj.weight", m.ffn * h},
                         {block + "mlp.c_proj.bias", h}});
}

Tensors Gpt2Tensors(const ModelShape& m) {
  Tensors out = {{"wte.weight", m.vocab * m.hidden},
                 {"wpe.weight", m.context * m.hidden}};
  for (int64_t i = 0; i < m.layers; ++i) {
    AddGpt2Block(m, fmt::format("h.{}.", i), out);
  }
  out.push_back({"ln_f.weight", m.hidden});
  out.push_back({"ln_f.bias", m.hidden});
  return out;
}

void AddLinear(const std::string& name, int64_t inputs, int64_t outputs,
               bool has_bias, Tensors& out) {
  out.push_back({name + ".weight", inputs * outputs});
  if (has_bias) out.push_back({name + ".bias", outputs});
}

void AddLlamaBlock(const ModelShape& m, const std::string& block,
                   Tensors& out) {
  const int64_t h = m.hidden;
  const int64_t q = m.query_width();
  const int64_t kv = m.key_width();
  AddLinear(block + "self_attn.q_proj", h, q, m.has_qkv_bias, out);
  AddLinear(block + "self_attn.k_proj", h, kv, m.has_qkv_bias, out);
  AddLinear(block + "self_attn.v_proj", h, kv, m.has_qkv_bias, out);
  AddLinear(block + "self_attn.o_proj", q, h, m.has_output_bias, out);
  AddLinear(block + "mlp.gate_proj", h, m.ffn, m.has_ffn_bias, out);
  AddLinear(block + "mlp.up_proj", h, m.ffn, m.has_ffn_bias, out);
  AddLinear(block + "mlp.down_proj", m.ffn, h, m.has_ffn_bias, out);
  out.push_back({block + "input_layernorm.weight", h});
  out.push_back({block + "post_attention_layernorm.weight", h});
}

Tensors LlamaTensors(const ModelShape& m) {
  Tensors out = {{"embed_tokens.weight", m.vocab * m.hidden}};
  for (int64_t i = 0; i < m.layers; ++i) {
    AddLlamaBlock(m, fmt::format("layers.{}.", i), out);
  }
  out.push_back({"norm.weight", m.hidden});
  return out;
}

// Large enough for any real model, small enough for 64 bits.
constexpr int64_t kMaxSize = 1'000'000'000;
constexpr double kMaxParameters = 1e14;

// An upper bound, without overflow.
double RoughParameters(const ModelShape& m) {
  const auto h = static_cast<double>(m.hidden);
  const auto width =
      static_cast<double>(m.heads) * static_cast<double>(m.head_dim);
  const double block = 4 * h * width + 3 * h * static_cast<double>(m.ffn);
  return static_cast<double>(m.layers) * block +
         h * static_cast<double>(2 * m.vocab + m.context);
}

void RequireSize(const std::string& source, const char* what, int64_t size) {
  if (size >= 1 && size <= kMaxSize) return;
  throw InvalidArgument(fmt::format("{}: {} is {}, expected 1 to {}", source,
                                    what, size, kMaxSize));
}

}  // namespace

std::vector<TensorSize> ParameterTensors(const ModelShape& shape) {
  Tensors tensors = shape.family == ModelFamily::kGpt2 ? Gpt2Tensors(shape)
                                                       : LlamaTensors(shape);
  if (!shape.has_tied_head) {
    tensors.push_back({"lm_head.weight", shape.vocab * shape.hidden});
  }
  return tensors;
}

std::vector<int64_t> ElemsOf(const std::vector<TensorSize>& tensors) {
  std::vector<int64_t> elems;
  for (const TensorSize& tensor : tensors) elems.push_back(tensor.elems);
  return elems;
}

int64_t ParameterCount(const ModelShape& shape) {
  int64_t count = 0;
  for (const TensorSize& t : ParameterTensors(shape)) count += t.elems;
  return count;
}

void Validate(const ModelShape& m, const std::string& source) {
  for (const auto& [what, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{
           {"vocabulary", m.vocab},
           {"context", m.context},
           {"width", m.hidden},
           {"number of layers", m.layers},
           {"number of heads", m.heads},
           {"number of key/value heads", m.kv_heads},
           {"width of a head", m.head_dim},
           {"width of the feed-forward part", m.ffn}}) {
    RequireSize(source, what, size);
  }
  constexpr int64_t kMaxLayers = 2'000;  // each costs a few us and kilobytes
  if (m.layers > kMaxLayers) {
    throw InvalidArgument(fmt::format("{}: {} layers, expected {} at most",
                                      source, m.layers, kMaxLayers));
  }
  if (m.heads % m.kv_heads != 0) {
    throw InvalidArgument(fmt::format(
        "{}: {} heads, expected a multiple of the {} key/value heads", source,
        m.heads, m.kv_heads));
  }
  if (RoughParameters(m) > kMaxParameters) {
    throw InvalidArgument(
        fmt::format("{}: more than 1e14 parameters, expected fewer", source));
  }
}

}  // namespace trainsys
