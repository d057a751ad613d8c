#pragma once

#include "trainsys/measure/findings.h"
#include "trainsys/model/transformer_config.h"

namespace trainsys {

// What a part of the report says that it trained, `rows` a rank and step.
inline TrainedModel TrainedModelOf(const TransformerConfig& config,
                                   int64_t rows) {
  return {ParameterCount(config), config.vocab, config.context, config.dim,
          config.layers,          config.heads, config.ffn,     rows};
}

}  // namespace trainsys
