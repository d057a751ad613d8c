#include "trainsys/budget/model_states.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/tensor/flat_layout.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

constexpr int64_t kMaxElems = 1'000'000'000'000'000;

void CheckTensors(std::span<const int64_t> tensors) {
  if (tensors.empty()) {
    throw InvalidArgument("no parameters, expected one tensor at least");
  }
  int64_t left = kMaxElems;
  for (int64_t elems : tensors) {
    if (elems < 0 || elems > left) {
      throw InvalidArgument("a parameter of " + std::to_string(elems) +
                            " elements, expected 0 or more, and at most 1e15 "
                            "in all parameters");
    }
    left -= elems;
  }
}

void Check(std::span<const int64_t> tensors, const StatesOptions& options) {
  if (options.zero_stage < 0 || options.zero_stage > 3) {
    throw InvalidArgument("zero is " + std::to_string(options.zero_stage) +
                          ", expected 0 to 3");
  }
  if (options.ranks < 1 || options.ranks > kMaxPlannedRanks) {
    throw InvalidArgument("ranks is " + std::to_string(options.ranks) +
                          ", expected 1 to " +
                          std::to_string(kMaxPlannedRanks));
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    throw InvalidArgument("rank is " + std::to_string(options.rank) +
                          ", expected 0 to " +
                          std::to_string(options.ranks - 1));
  }
  CheckTensors(tensors);
}

ElementBytes Sizes(const StatesOptions& options) {
  return BytesOf(options.precision, options.optimizer);
}

// The tensors that are the rank's by parameter: first, and one past the last.
std::pair<int64_t, int64_t> OwnedRun(int64_t tensors, int64_t ranks,
                                     int64_t rank) {
  const int64_t each = tensors / ranks;
  const int64_t more = tensors % ranks;
  const int64_t first = rank * each + std::min(rank, more);
  return {first, first + each + (rank < more ? 1 : 0)};
}

Shard ShardOf(const FlatLayout& layout, const StatesOptions& options) {
  if (options.partition == Partition::kFlat) {
    const int64_t elem_bytes = Sizes(options).parameter;
    return PlanShards(layout.elems, elem_bytes,
                      options.ranks)[static_cast<size_t>(options.rank)];
  }
  const auto num_tensors = static_cast<int64_t>(layout.offsets.size());
  const auto [first, last] = OwnedRun(num_tensors, options.ranks, options.rank);
  const auto offset = [&](int64_t tensor) {
    return tensor == num_tensors ? layout.elems
                                 : layout.offsets[static_cast<size_t>(tensor)];
  };
  return {offset(first), offset(last) - offset(first)};
}

// Elements of tensors, padding apart, that lie inside a shard.
int64_t UsedElems(std::span<const int64_t> tensors, const FlatLayout& layout,
                  const Shard& shard) {
  int64_t used = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t begin = std::max(shard.begin, layout.offsets[i]);
    const int64_t end = std::min(shard.end(), layout.offsets[i] + tensors[i]);
    used += std::max<int64_t>(0, end - begin);
  }
  return used;
}

std::vector<Bucket> Buckets(std::span<const int64_t> tensors,
                            const StatesOptions& options) {
  std::vector<ParameterSize> sizes;
  for (int64_t elems : tensors) {
    sizes.push_back({elems, Sizes(options).gradient, 0});
  }
  return PlanBuckets(sizes, {options.bucket_bytes});
}

struct BucketElems {
  int64_t all = 0;
  int64_t largest = 0;
};

BucketElems ElemsOf(const std::vector<Bucket>& buckets) {
  BucketElems elems;
  for (const Bucket& bucket : buckets) {
    elems.all += bucket.layout.elems;
    elems.largest = std::max(elems.largest, bucket.layout.elems);
  }
  return elems;
}

StateBytes Bytes(int64_t used, int64_t elems, int64_t elem_bytes) {
  return {used * elem_bytes, (elems - used) * elem_bytes};
}

int64_t CommunicationBytes(const BucketElems& buckets,
                           const StatesOptions& options) {
  const ElementBytes size = Sizes(options);
  if (options.zero_stage < 2) return 0;
  const int64_t gradients = 2 * buckets.largest * size.gradient;
  if (options.zero_stage < 3) return gradients;
  return gradients + 2 * buckets.largest * size.parameter;
}

}  // namespace

ModelStates ModelStatesOf(std::span<const int64_t> tensors,
                          const StatesOptions& options) {
  Check(tensors, options);
  const ElementBytes size = Sizes(options);
  const FlatLayout layout = LayOut(tensors, size.parameter);
  const Shard whole = {0, layout.elems};
  const Shard own = ShardOf(layout, options);
  const BucketElems buckets = ElemsOf(Buckets(tensors, options));
  const int64_t all_used = UsedElems(tensors, layout, whole);
  const int64_t own_used = UsedElems(tensors, layout, own);
  const auto sharded_from = [&](int stage, int64_t elem_bytes) {
    return options.zero_stage >= stage
               ? Bytes(own_used, own.elems, elem_bytes)
               : Bytes(all_used, whole.elems, elem_bytes);
  };
  ModelStates states;
  states.parameters = sharded_from(3, size.parameter);
  states.optimizer = sharded_from(1, size.optimizer);
  states.gradients = options.zero_stage >= 2
                         ? sharded_from(2, size.gradient)
                         : Bytes(all_used, buckets.all, size.gradient);
  states.communication = CommunicationBytes(buckets, options);
  return states;
}

int LargestRank(std::span<const int64_t> tensors,
                const StatesOptions& options) {
  Check(tensors, options);
  // A flat buffer's first shard is never the smaller one.
  if (options.partition == Partition::kFlat) return 0;
  const FlatLayout layout = LayOut(tensors, Sizes(options).parameter);
  const int owners = std::min(options.ranks, static_cast<int>(tensors.size()));
  StatesOptions of_rank = options;
  int largest = 0;
  int64_t most = -1;
  for (of_rank.rank = 0; of_rank.rank < owners; ++of_rank.rank) {
    const int64_t elems = ShardOf(layout, of_rank).elems;
    if (elems > most) largest = of_rank.rank;
    most = std::max(most, elems);
  }
  return largest;
}

Shard OwnedShard(std::span<const int64_t> tensors,
                 const StatesOptions& options) {
  Check(tensors, options);
  return ShardOf(LayOut(tensors, Sizes(options).parameter), options);
}

}  // namespace trainsys
