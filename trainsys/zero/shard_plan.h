// Who owns which part of the parameters. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainsys {

// How parameters are cut into one part a rank.
enum class Partition {
  kFlat,      // evenly, at any multiple of 64 bytes
  kByTensor,  // runs of whole tensors, as many on each rank
  kBalanced,  // whole tensors, as many bytes on each rank as that allows
};

// One rank's part of the flat buffer. Units: bytes, padding included.
struct Shard {
  int64_t begin = 0;  // from the start of the buffer
  int64_t bytes = 0;

  int64_t end() const { return begin + bytes; }
};

// What of one tensor lies in a shard. Units: bytes, without padding; multiples
// of the tensor's element.
struct ShardPiece {
  size_t tensor = 0;
  int64_t begin = 0;     // from the tensor's first byte
  int64_t in_shard = 0;  // from the shard's first byte
  int64_t bytes = 0;
};

// All tensors, of whatever dtypes, as one flat buffer, each starting on 64
// bytes; and the buffer cut into one shard a rank, also on 64 bytes, in rank
// order and without gaps, possibly empty ones. So every element has one owner.
struct ShardPlan {
  Partition partition = Partition::kFlat;
  std::vector<int64_t> tensor_bytes;
  std::vector<int64_t> offsets;  // of each tensor, bytes
  int64_t bytes = 0;             // of the buffer, padding included
  std::vector<Shard> shards;     // of each rank

  // In the order in which they lie in the shard.
  std::vector<ShardPiece> PiecesOf(int rank) const;
};

// kFlat: shards of ceil(bytes / ranks) rounded up to 64 bytes, but for the
// last ones, which get what is left, possibly nothing. Tensors lie in their
// order.
// kByTensor: contiguous runs of tensors in their order, the remainder of
// tensors / ranks going to the first ranks: 291 tensors on 4 ranks are 73, 73,
// 73, 72. (The rule of the published class ZeROOne.)
// kBalanced: the largest tensor first, each to the rank that has the least so
// far, the first of several; tensors lie in their order within a shard. No
// rank then has more than 4/3 of what is possible (Graham 1969, LPT).
// Cost: O(tensors log tensors + ranks).
ShardPlan PlanShards(std::span<const int64_t> tensor_bytes, int ranks,
                     Partition partition);

// The shards' lengths, as all-gather and reduce-scatter take them.
std::vector<int64_t> Counts(const ShardPlan& plan, int64_t elem_bytes = 1);

// Each rank's share of the tensors' bytes, and the largest share over the mean.
std::string Describe(const ShardPlan& plan);

}  // namespace trainsys
