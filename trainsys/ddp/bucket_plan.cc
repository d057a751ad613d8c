#include "trainsys/ddp/bucket_plan.h"

#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

void LayOutBucket(std::span<const ParameterSize> parameters, Bucket& bucket) {
  std::vector<int64_t> elems;
  for (size_t p : bucket.parameters) elems.push_back(parameters[p].elems);
  const int64_t elem_bytes = parameters[bucket.parameters[0]].elem_bytes;
  bucket.layout = LayOut(elems, elem_bytes);
}

}  // namespace

std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                int64_t bucket_bytes) {
  if (bucket_bytes <= 0) {
    throw collectives::InvalidArgument("bucket_bytes is " +
                                       std::to_string(bucket_bytes) +
                                       ", expected a positive number of bytes");
  }
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  for (size_t p = parameters.size(); p-- > 0;) {
    const ParameterSize& size = parameters[p];
    const int64_t more =
        AlignedElems(size.elems, size.elem_bytes) * size.elem_bytes;
    const bool fits = !buckets.empty() && bytes + more <= bucket_bytes &&
                      parameters[p + 1].dtype == size.dtype;
    if (!fits) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().parameters.push_back(p);
    bytes += more;
  }
  for (Bucket& bucket : buckets) LayOutBucket(parameters, bucket);
  return buckets;
}

}  // namespace trainsys
