#include "trainsys/budget/model_config.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using nlohmann::json;

// One config.json, read key by key.
class Config {
 public:
  Config(std::string_view text, std::string source)
      : source_(std::move(source)) {
    json_ = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) {
      throw InvalidArgument(source_ +
                            " is no JSON object, expected a config.json");
    }
  }

  // Absent and null are the same.
  const json* Find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  std::optional<int64_t> OptionalSize(const char* key) const {
    const json* value = Find(key);
    if (!value) return std::nullopt;
    if (!value->is_number_integer()) Refuse(key, *value, "a whole number");
    return value->get<int64_t>();
  }

  int64_t Size(const char* key) const {
    if (const auto size = OptionalSize(key)) return *size;
    throw InvalidArgument(fmt::format(
        "{}: '{}' is missing, expected a whole number", source_, key));
  }

  bool Flag(const char* key, bool if_absent) const {
    const json* value = Find(key);
    if (!value) return if_absent;
    if (!value->is_boolean()) Refuse(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string Text(const char* key) const {
    const json* value = Find(key);
    if (!value) return "";
    if (!value->is_string()) Refuse(key, *value, "a text");
    return value->get<std::string>();
  }

  [[noreturn]] void Refuse(const char* key, const json& value,
                           const std::string& expected) const {
    std::string shown =
        value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
    throw InvalidArgument(fmt::format("{}: '{}' is {}, expected {}", source_,
                                      key, shown, expected));
  }

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  json json_;
};

// Division happens before the sizes are checked.
int64_t PartOf(int64_t whole, int64_t parts) {
  return parts > 0 ? whole / parts : 0;
}

ModelShape Gpt2Shape(const Config& config) {
  ModelShape m;
  m.family = ModelFamily::kGpt2;
  m.vocab = config.Size("vocab_size");
  m.context = config.OptionalSize("n_positions").value_or(0);
  if (m.context == 0) m.context = config.Size("n_ctx");
  m.hidden = config.Size("n_embd");
  m.layers = config.Size("n_layer");
  m.heads = config.Size("n_head");
  m.kv_heads = m.heads;
  m.head_dim = PartOf(m.hidden, m.heads);
  m.ffn = config.OptionalSize("n_inner").value_or(
      m.hidden < (int64_t{1} << 40) ? 4 * m.hidden : m.hidden);
  m.has_tied_head = config.Flag("tie_word_embeddings", true);
  return m;
}

ModelShape LlamaShape(const Config& config, bool is_qwen2) {
  ModelShape m;
  m.vocab = config.Size("vocab_size");
  m.context = config.Size("max_position_embeddings");
  m.hidden = config.Size("hidden_size");
  m.layers = config.Size("num_hidden_layers");
  m.heads = config.Size("num_attention_heads");
  m.kv_heads = config.OptionalSize("num_key_value_heads").value_or(m.heads);
  m.head_dim =
      config.OptionalSize("head_dim").value_or(PartOf(m.hidden, m.heads));
  m.ffn = config.Size("intermediate_size");
  m.has_tied_head = config.Flag("tie_word_embeddings", false);
  m.has_output_bias = config.Flag("attention_bias", false);
  m.has_qkv_bias = m.has_output_bias || is_qwen2;
  m.has_ffn_bias = config.Flag("mlp_bias", false);
  return m;
}

void RequireWholeHeads(const Config& config, const ModelShape& shape) {
  if (config.Find("head_dim") || shape.query_width() == shape.hidden) return;
  throw InvalidArgument(fmt::format(
      "{}: width {} on {} heads, expected a multiple of the heads or "
      "'head_dim'",
      config.source(), shape.hidden, shape.heads));
}

ModelShape ShapeOf(const Config& config) {
  const std::string type = config.Text("model_type");
  if (type == "gpt2" || (type.empty() && config.Find("n_embd"))) {
    return Gpt2Shape(config);
  }
  if (type.empty() || type == "llama" || type == "mistral" || type == "qwen2") {
    return LlamaShape(config, type == "qwen2");
  }
  config.Refuse("model_type", *config.Find("model_type"),
                "llama, mistral, qwen2 or gpt2");
}

}  // namespace

ModelShape ShapeFromConfig(std::string_view text, const std::string& source) {
  const Config config(text, source);
  ModelShape shape = ShapeOf(config);
  shape.name = source;
  Validate(shape, source);
  RequireWholeHeads(config, shape);
  return shape;
}

}  // namespace trainsys
