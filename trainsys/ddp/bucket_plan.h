// Which gradients travel together. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/tensor/flat_layout.h"

namespace trainsys {

struct ParameterSize {
  int64_t elems = 0;
  int64_t elem_bytes = 4;
  int dtype = 0;  // only parameters of one dtype share a bucket
};

struct Bucket {
  std::vector<size_t> parameters;  // indices, in the order they get ready
  FlatLayout layout;               // of those parameters, in that order
};

// Buckets in backward order: the reverse of registration, since the last
// layer's gradients are ready first. A bucket takes parameters as long as
// their bytes, padding included, stay within `bucket_bytes`; a larger
// parameter has a bucket of its own. Every parameter is in exactly one.
// Errors: InvalidArgument unless bucket_bytes is positive.
std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                int64_t bucket_bytes);

}  // namespace trainsys
