// The four arrays of an optimizer, and what goes over them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "trainsys/optim/update.h"

namespace trainsys {

// From libtorch's allocator, as a model's are, written once.
struct Arrays {
  explicit Arrays(int64_t elems);

  // Elements [begin, end) of each.
  Elements<float> Part(int64_t begin, int64_t end) const;

  at::Tensor param;  // all [elems]
  at::Tensor grad;
  at::Tensor m;
  at::Tensor v;
};

// Calls work(begin, end) for equal parts of `elems`, each on a thread of its
// own, the first on the caller's.
void OnThreads(int threads, int64_t elems,
               const std::function<void(int64_t, int64_t)>& work);

// What cannot be avoided: four reads and three writes an element, as the fused
// update has them, and next to no arithmetic.
void ReadFourWriteThree(const Elements<float>& elements);

// A read of each gradient. Result: of no use, but so that it is read.
uint32_t ReadOnce(const Elements<float>& elements);

}  // namespace trainsys
