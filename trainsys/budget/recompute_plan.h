// Which parts of which blocks run a second time in backward.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainsys {

// kSelective: the core of the block's attention only; kFull: the whole block.
enum class BlockRecompute { kNone, kSelective, kFull };

// One entry a block, the first block first.
using RecomputePlan = std::vector<BlockRecompute>;

// Names:
//   none        nothing runs twice
//   selective   the core of every block's attention
//   full        every block
//   every-K     blocks K-1, 2K-1, ...; K from 1 (which is full) upwards
// Errors: InvalidArgument for another name or for layers below 1.
RecomputePlan PlanOfPolicy(std::string_view policy, int64_t layers);

// Runs of equal blocks: "blocks 0-2 full, 3 selective, 4-7 none"; "full" where
// all are.
std::string Describe(const RecomputePlan& plan);

}  // namespace trainsys
