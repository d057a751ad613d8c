// The sizes of a TransformerLM and what follows from them. No libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainsys {

// Letters: V vocabulary, T positions (up to context), D dim, L layers,
// H heads, F ffn, B rows of a batch.
struct TransformerConfig {
  int64_t vocab = 256;
  int64_t context = 256;
  int64_t dim = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t ffn = 384;
};

// Errors: InvalidArgument where a size is below 1, dim is no multiple of
// heads, or a head's width is odd.
void Validate(const TransformerConfig& config);

// 2VD + L(4D^2 + 3DF + 2D) + D; 918,656 by default.
int64_t ParameterCount(const TransformerConfig& config);

struct NamedSize {
  std::string name;
  int64_t elements = 0;
};

// Every parameter as TransformerLM::named_parameters() lists it, in its order.
std::vector<NamedSize> ParameterSizes(const TransformerConfig& config);

}  // namespace trainsys
