// What happens to a full bucket on its way through the collective.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace trainsys {

// A bucket whose gradients are all there.
struct FullBucket {
  at::Tensor flat;  // [elems], of the bucket's dtype
  collectives::ReduceOp op = collectives::ReduceOp::kAverage;  // or kSum
  std::string label;                                           // "bucket 3"
  // Where given, the elements of each rank's part: only it gets the reduction
  // of its part, in place, by a reduce-scatter. Elsewhere anything may be left.
  std::vector<int64_t> counts;
};

// Posts what makes `bucket.flat`, or this rank's part of it, its reduction over
// ranks. Result: a Work; once it is done and its continuations have run, the
// reduction is there. Every rank calls it for the same buckets in the same
// order, inside backward; it must not block.
//
// What travels in 16 bits is folded in f32, with one rounding at the end (see
// communicator.h): compressing costs the rounding of what each rank gives, and
// one of the result where that travels too. Sums travel as averages, so that
// many ranks' sum is no overflow.
using CommHook = std::function<collectives::Work(
    const FullBucket& bucket, collectives::Communicator& comm)>;

// The bucket as it is.
CommHook NoCompression();
// Half the bytes: both ways in bf16, or in f16, which holds 11 significant bits
// instead of 8 but nothing above 65504: scale the loss.
CommHook CompressToBF16();
CommHook CompressToF16();
// What each rank gives travels in bf16, to every rank; the result is folded
// from that and kept in the bucket's dtype, so only what ranks give is rounded.
// Bytes: S(N-1)/2 of f32, which is as many as CompressToBF16 for two ranks.
// Memory: N/2 buckets for as long as it is in flight, and one more while it
// folds.
CommHook GatherBF16();

}  // namespace trainsys
