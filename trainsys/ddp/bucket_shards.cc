#include "trainsys/ddp/bucket_shards.h"

#include <algorithm>

namespace trainsys {
namespace {

// Calls fn(rank, begin, end) for each part of [begin, end) that one rank owns.
template <typename Fn>
void ForEachOwner(const std::vector<Shard>& shards, int64_t begin, int64_t end,
                  const Fn& fn) {
  auto shard =
      std::upper_bound(shards.begin(), shards.end(), begin,
                       [](int64_t at, const Shard& s) { return at < s.end(); });
  for (; begin < end; ++shard) {
    const int64_t until = std::min(end, shard->end());
    if (until > begin) fn(shard - shards.begin(), begin, until);
    begin = until;
  }
}

// Runs of one rank lie one after another in the bucket.
void Append(std::vector<BucketShards::Run>& own, const BucketShards::Run& run) {
  if (!own.empty() && own.back().in_shard + own.back().elems == run.in_shard) {
    own.back().elems += run.elems;
  } else {
    own.push_back(run);
  }
}

}  // namespace

Bucket InOrderOfShards(const Bucket& bucket,
                       std::span<const ParameterSize> sizes,
                       const ShardedParameters& sharded) {
  Bucket sorted;
  sorted.parameters = bucket.parameters;
  // Empty ones share their place with the one after them.
  std::stable_sort(sorted.parameters.begin(), sorted.parameters.end(),
                   [&sharded](size_t a, size_t b) {
                     return sharded.offsets[a] < sharded.offsets[b];
                   });
  std::vector<int64_t> elems;
  for (size_t p : sorted.parameters) elems.push_back(sizes[p].elems);
  sorted.layout = LayOut(elems, sizes[sorted.parameters[0]].elem_bytes);
  return sorted;
}

bool IsWhollyOwn(size_t parameter, int64_t bytes,
                 const ShardedParameters& sharded) {
  const int64_t begin = sharded.offsets[parameter];
  return bytes == 0 ||
         (sharded.own().begin <= begin && begin + bytes <= sharded.own().end());
}

BucketShards CutBucket(const Bucket& bucket, int64_t elem_bytes,
                       const ShardedParameters& sharded) {
  BucketShards cut;
  cut.counts.resize(sharded.shards.size());
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const int64_t in_bucket = bucket.layout.offsets[i];
    const int64_t next = i + 1 < bucket.parameters.size()
                             ? bucket.layout.offsets[i + 1]
                             : bucket.layout.elems;
    const int64_t offset = sharded.offsets[bucket.parameters[i]];
    const int64_t bytes = (next - in_bucket) * elem_bytes;
    const auto count = [&](int64_t rank, int64_t begin, int64_t end) {
      const int64_t elems = (end - begin) / elem_bytes;
      cut.counts[static_cast<size_t>(rank)] += elems;
      if (rank != sharded.rank) return;
      Append(cut.own, {in_bucket + (begin - offset) / elem_bytes,
                       (begin - sharded.own().begin) / elem_bytes, elems});
    };
    ForEachOwner(sharded.shards, offset, offset + bytes, count);
  }
  return cut;
}

std::vector<OwnedRange> OwnersOf(std::span<const size_t> parameters,
                                 const ShardPlan& plan) {
  std::vector<size_t> sorted(parameters.begin(), parameters.end());
  std::sort(sorted.begin(), sorted.end(), [&plan](size_t a, size_t b) {
    return plan.offsets[a] < plan.offsets[b];
  });
  std::vector<OwnedRange> ranges;
  for (size_t p : sorted) {
    const int64_t begin = plan.offsets[p];
    ForEachOwner(plan.shards, begin,
                 begin + AlignedElems(plan.tensor_bytes[p], 1),
                 [&ranges](int64_t rank, int64_t from, int64_t until) {
                   const int owner = static_cast<int>(rank);
                   if (!ranges.empty() && ranges.back().owner == owner &&
                       ranges.back().begin + ranges.back().bytes == from) {
                     ranges.back().bytes += until - from;
                   } else {
                     ranges.push_back({owner, from, until - from});
                   }
                 });
  }
  return ranges;
}

}  // namespace trainsys
