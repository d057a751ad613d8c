// How a bucket is cut between the ranks that own what is in it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// Where parameters lie in the flat buffer that a ShardPlan cuts, and which
// shard is this rank's.
struct ShardedParameters {
  std::vector<int64_t> offsets;  // of each parameter, bytes
  std::vector<Shard> shards;     // of each rank
  int rank = 0;

  const Shard& own() const { return shards[static_cast<size_t>(rank)]; }
};

// Is all of the parameter in this rank's shard? An empty one always is.
bool IsWhollyOwn(size_t parameter, int64_t bytes,
                 const ShardedParameters& sharded);

// What reduce-scatter takes and gives. Units: elements of the bucket's dtype,
// padding included.
struct BucketShards {
  std::vector<int64_t> counts;  // of each rank's part, in rank order

  // A stretch of this rank's part that is one stretch in its shard too.
  struct Run {
    int64_t in_bucket = 0;  // from the bucket's first element
    int64_t in_shard = 0;   // from the shard's first
    int64_t elems = 0;
  };
  std::vector<Run> own;
};

// The same parameters, laid out in the order in which they lie in the flat
// buffer: then what each rank owns of the bucket is one stretch, in rank order.
Bucket InOrderOfShards(const Bucket& bucket,
                       std::span<const ParameterSize> sizes,
                       const ShardedParameters& sharded);

// `bucket`: in the order of shards.
BucketShards CutBucket(const Bucket& bucket, int64_t elem_bytes,
                       const ShardedParameters& sharded);

// Stretches of the flat buffer that hold the given parameters, each of one
// owner, in order. Units: bytes, padding included.
struct OwnedRange {
  int owner = 0;
  int64_t begin = 0;
  int64_t bytes = 0;
};
std::vector<OwnedRange> OwnersOf(std::span<const size_t> parameters,
                                 const ShardPlan& plan);

}  // namespace trainsys
