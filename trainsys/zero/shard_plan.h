// Which part of a flat buffer belongs to which rank. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace trainsys {

struct Shard {
  int64_t begin = 0;  // elements from the start of the flat buffer
  int64_t elems = 0;

  int64_t end() const { return begin + elems; }
};

// Cuts `elems` into one shard a rank, in rank order and without gaps: all of
// ceil(elems / ranks) rounded up to 64 bytes, but for the last ones, which get
// what is left, possibly nothing.
std::vector<Shard> PlanShards(int64_t elems, int64_t elem_bytes, int ranks);

// The shards' lengths, as all-gather and reduce-scatter take them.
std::vector<int64_t> Counts(const std::vector<Shard>& shards);

}  // namespace trainsys
