#include "trainsys/model/transformer_config.h"

#include <fmt/format.h>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

void CheckAtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument(
      fmt::format("TransformerConfig: {} is {}; give at least 1", name, value));
}

std::vector<NamedSize> BlockParameters(const TransformerConfig& config) {
  const int64_t dim = config.dim, ffn = config.ffn;
  return {{"attention_norm.weight", dim}, {"attention.wq", dim * dim},
          {"attention.wk", dim * dim},    {"attention.wv", dim * dim},
          {"attention.wo", dim * dim},    {"feed_forward_norm.weight", dim},
          {"feed_forward.w1", ffn * dim}, {"feed_forward.w3", ffn * dim},
          {"feed_forward.w2", dim * ffn}};
}

}  // namespace

void Validate(const TransformerConfig& config) {
  CheckAtLeastOne("vocab", config.vocab);
  CheckAtLeastOne("context", config.context);
  CheckAtLeastOne("dim", config.dim);
  CheckAtLeastOne("layers", config.layers);
  CheckAtLeastOne("heads", config.heads);
  CheckAtLeastOne("ffn", config.ffn);
  if (config.dim % (2 * config.heads) == 0) return;
  throw InvalidArgument(fmt::format(
      "TransformerConfig: dim {} does not split into {} heads of even width; "
      "give a dim that is a multiple of {}",
      config.dim, config.heads, 2 * config.heads));
}

int64_t ParameterCount(const TransformerConfig& config) {
  const int64_t dim = config.dim;
  const int64_t block = 4 * dim * dim + 3 * dim * config.ffn + 2 * dim;
  return 2 * config.vocab * dim + config.layers * block + dim;
}

std::vector<NamedSize> ParameterSizes(const TransformerConfig& config) {
  std::vector<NamedSize> all = {{"embedding", config.vocab * config.dim}};
  for (int64_t block = 0; block < config.layers; ++block) {
    for (const NamedSize& p : BlockParameters(config)) {
      all.push_back({fmt::format("block{}.{}", block, p.name), p.elements});
    }
  }
  all.push_back({"final_norm.weight", config.dim});
  all.push_back({"output.weight", config.vocab * config.dim});
  return all;
}

}  // namespace trainsys
