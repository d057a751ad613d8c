// The seam between the model and whoever decides how its parts are run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace trainsys {

// kAttentionCore: the inner part of a block's attention, from q, k and v to
// their mix; it runs inside its block.
enum class ModelPart { kBlock, kAttentionCore };

// Stays valid when copied, also beyond the model's life.
using SegmentFunction =
    std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// Runs one part of block `block`: returns fn(inputs), by whatever means. One
// that recomputes keeps only `inputs` and calls fn again in backward.
using SegmentRunner = std::function<at::Tensor(
    ModelPart part, int64_t block, const SegmentFunction& fn,
    const std::vector<at::Tensor>& inputs)>;

}  // namespace trainsys
