#include "trainsys/ddp/bucket_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

void CheckLimit(const std::string& name, int64_t bytes) {
  if (bytes >= 1 && bytes <= BucketLimits::kMost) return;
  throw collectives::InvalidArgument(
      name + " is " + std::to_string(bytes) + ", expected a number of bytes " +
      "from 1 to " + std::to_string(BucketLimits::kMost) + " (1 TiB)");
}

// Still taking parameters.
struct OpenBucket {
  std::vector<size_t> parameters;
  int64_t bytes = 0;
  int64_t limit = 0;
  size_t last = 0;  // position of its last parameter in the order
};

struct ClosedBucket {
  std::vector<size_t> parameters;
  size_t last = 0;
};

// One open bucket for each dtype.
std::vector<ClosedBucket> Cut(std::span<const ParameterSize> parameters,
                              std::span<const size_t> order,
                              const BucketLimits& limits) {
  std::vector<ClosedBucket> closed;
  std::map<int, OpenBucket> open;
  const auto close = [&closed](OpenBucket& bucket) {
    closed.push_back({std::exchange(bucket.parameters, {}), bucket.last});
  };
  for (size_t at = 0; at < order.size(); ++at) {
    const ParameterSize& size = parameters[order[at]];
    const int64_t more =
        AlignedElems(size.elems, size.elem_bytes) * size.elem_bytes;
    const auto [entry, is_first] = open.try_emplace(size.dtype);
    OpenBucket& bucket = entry->second;
    if (is_first) {
      bucket.limit = std::min(limits.first_bucket_bytes, limits.bucket_bytes);
    }
    if (!bucket.parameters.empty() && bucket.bytes + more > bucket.limit) {
      close(bucket);
      bucket.bytes = 0;
      bucket.limit = limits.bucket_bytes;
    }
    bucket.parameters.push_back(order[at]);
    bucket.bytes += more;
    bucket.last = at;
  }
  for (auto& [dtype, bucket] : open) close(bucket);
  std::sort(closed.begin(), closed.end(),
            [](const auto& a, const auto& b) { return a.last < b.last; });
  return closed;
}

FlatLayout LayOutBucket(std::span<const ParameterSize> parameters,
                        const std::vector<size_t>& members) {
  std::vector<int64_t> elems;
  for (size_t p : members) elems.push_back(parameters[p].elems);
  return LayOut(elems, parameters[members[0]].elem_bytes);
}

}  // namespace

std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                std::span<const size_t> order,
                                const BucketLimits& limits) {
  CheckLimit("bucket_bytes", limits.bucket_bytes);
  CheckLimit("first_bucket_bytes", limits.first_bucket_bytes);
  std::vector<Bucket> buckets;
  for (ClosedBucket& cut : Cut(parameters, order, limits)) {
    FlatLayout layout = LayOutBucket(parameters, cut.parameters);
    buckets.push_back({std::move(cut.parameters), std::move(layout)});
  }
  return buckets;
}

std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                const BucketLimits& limits) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return PlanBuckets(parameters, order, limits);
}

}  // namespace trainsys
