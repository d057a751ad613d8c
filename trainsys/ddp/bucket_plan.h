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

// Units: bytes, padding included.
struct BucketLimits {
  static constexpr int64_t kMost = int64_t{1} << 40;

  int64_t bucket_bytes = int64_t{25} << 20;
  // Of the first bucket of each dtype: small, so that communication starts
  // early. Above bucket_bytes it counts as that.
  int64_t first_bucket_bytes = int64_t{1} << 20;
};

struct Bucket {
  std::vector<size_t> parameters;  // indices, in the order they get ready
  FlatLayout layout;               // of those parameters, in that order
};

// `order`: the parameters that get a gradient, in the order in which they get
// it. A bucket takes those of one dtype as long as their bytes stay within its
// limit; a larger parameter has a bucket of its own.
// Result: every parameter of `order` is in exactly one bucket; the buckets are
// in the order in which they get full.
// Errors: InvalidArgument for limits below 1 or above kMost bytes.
std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                std::span<const size_t> order,
                                const BucketLimits& limits);

// For the reverse of registration: the last layer's gradients come first.
std::vector<Bucket> PlanBuckets(std::span<const ParameterSize> parameters,
                                const BucketLimits& limits);

}  // namespace trainsys
