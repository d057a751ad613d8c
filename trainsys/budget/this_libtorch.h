// The rules of the libtorch that this is compiled with.
#pragma once

#include <torch/version.h>

#include "trainsys/budget/transformer_activations.h"

namespace trainsys {

inline constexpr Libtorch kThisLibtorch =
    TORCH_VERSION_MAJOR < 2 ? Libtorch::k1 : Libtorch::k2;

}  // namespace trainsys
