// A model's shape from its config.json. Pure.
#pragma once

#include <string>
#include <string_view>

#include "trainsys/budget/architecture.h"

namespace trainsys {

// `text`: config.json as published with a model of the Llama family
// (model_type llama, mistral or qwen2, or none) or with GPT-2. Sizes that may
// be absent have the family's defaults: as many key/value heads as heads,
// heads of hidden_size / num_attention_heads, no biases (qwen2: of q, k, v),
// a head of its own (GPT-2: tied).
// Errors: InvalidArgument with one line that names `source`, the key, and what
// was expected.
ModelShape ShapeFromConfig(std::string_view text, const std::string& source);

}  // namespace trainsys
