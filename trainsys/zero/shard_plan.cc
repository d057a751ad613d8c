#include "trainsys/zero/shard_plan.h"

#include <algorithm>

#include "trainsys/tensor/flat_layout.h"

namespace trainsys {

std::vector<Shard> PlanShards(int64_t elems, int64_t elem_bytes, int ranks) {
  const int64_t each = AlignedElems((elems + ranks - 1) / ranks, elem_bytes);
  std::vector<Shard> shards;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = std::min(elems, r * each);
    shards.push_back({begin, std::min(elems, begin + each) - begin});
  }
  return shards;
}

std::vector<int64_t> Counts(const std::vector<Shard>& shards) {
  std::vector<int64_t> counts;
  for (const Shard& shard : shards) counts.push_back(shard.elems);
  return counts;
}

}  // namespace trainsys
