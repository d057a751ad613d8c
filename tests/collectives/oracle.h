// What collectives must give, computed the plain way, and memory that notices
// when more than it should is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/types.h"

namespace collectives {

using Bytes = std::vector<std::byte>;

// Reproducible and all different. Floats have random mantissas, so that a sum
// in another order has other bits; integers use all their bits.
Bytes RandomValues(DType dtype, int64_t elems, uint64_t seed);

// values[0] op values[1] op ..., element by element in that order; 16-bit
// floats in f32. Does not use the code under test.
Bytes SerialFold(DType dtype, ReduceOp op, const std::vector<Bytes>& values);

// The part [begin, begin + elems) of `values`.
Bytes Slice(const Bytes& values, DType dtype, int64_t begin, int64_t elems);

// 16-bit floats by their bits, for tests of single values.
uint16_t ToF16(float value);
uint16_t ToBF16(float value);
float FromF16(uint16_t bits);
float FromBF16(uint16_t bits);

// Memory for some elements, with poison before and after. It begins
// `start_bytes` behind an aligned address; one element, if not said otherwise.
class PoisonedBuffer {
 public:
  PoisonedBuffer(DType dtype, int64_t elems);
  PoisonedBuffer(DType dtype, int64_t elems, int64_t start_bytes);
  PoisonedBuffer(DType dtype, const Bytes& values);
  PoisonedBuffer(DType dtype, const Bytes& values, int64_t start_bytes);

  // The element numbered `elem`; it may be the one past the end.
  void* At(int64_t elem);
  void* data() { return At(0); }
  bool Holds(const Bytes& expected) const;
  bool IsPoisonIntact() const;

 private:
  int64_t elem_bytes_;
  int64_t size_bytes_;
  int64_t begin_;  // of the elements, in memory_
  Bytes memory_;
};

}  // namespace collectives
