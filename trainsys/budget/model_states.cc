#include "trainsys/budget/model_states.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/ddp/bucket_plan.h"

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

// Elements of what lies in a shard.
struct OwnedElems {
  int64_t used = 0;  // by tensors
  int64_t all = 0;   // padding included
};

OwnedElems ElemsOf(const ShardPlan& plan, int rank, int64_t elem_bytes) {
  OwnedElems own;
  own.all = plan.shards[static_cast<size_t>(rank)].bytes / elem_bytes;
  for (const ShardPiece& piece : plan.PiecesOf(rank)) {
    own.used += piece.bytes / elem_bytes;
  }
  return own;
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
  const ElementBytes size = Sizes(options);
  const ShardPlan plan = ShardPlanOf(tensors, options);
  const OwnedElems own = ElemsOf(plan, options.rank, size.parameter);
  const OwnedElems whole = {
      std::accumulate(tensors.begin(), tensors.end(), int64_t{0}),
      plan.bytes / size.parameter};
  const BucketElems buckets = ElemsOf(Buckets(tensors, options));
  const auto sharded_from = [&](int stage, int64_t elem_bytes) {
    const OwnedElems& kept = options.zero_stage >= stage ? own : whole;
    return Bytes(kept.used, kept.all, elem_bytes);
  };
  ModelStates states;
  states.parameters = sharded_from(3, size.parameter);
  states.optimizer = sharded_from(1, size.optimizer);
  states.gradients = options.zero_stage >= 2
                         ? sharded_from(2, size.gradient)
                         : Bytes(whole.used, buckets.all, size.gradient);
  states.communication = CommunicationBytes(buckets, options);
  return states;
}

int LargestRank(std::span<const int64_t> tensors,
                const StatesOptions& options) {
  const auto shards = ShardPlanOf(tensors, options).shards;
  const auto largest = std::max_element(
      shards.begin(), shards.end(),
      [](const Shard& a, const Shard& b) { return a.bytes < b.bytes; });
  return static_cast<int>(largest - shards.begin());
}

ShardPlan ShardPlanOf(std::span<const int64_t> tensors,
                      const StatesOptions& options) {
  Check(tensors, options);
  std::vector<int64_t> bytes;
  for (int64_t elems : tensors) {
    bytes.push_back(elems * Sizes(options).parameter);
  }
  return PlanShards(bytes, options.ranks, options.partition);
}

}  // namespace trainsys
