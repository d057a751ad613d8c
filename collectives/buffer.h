// A typed, contiguous piece of the caller's memory.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace collectives {

inline constexpr int kHostMemory = -1;

// Lifetime: the memory outlives the Work of the collective that uses it.
// `data` may be null when `elems` is 0.
struct Buffer {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t elems = 0;
  int device = kHostMemory;  // or the accelerator's index
};

struct ConstBuffer {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t elems = 0;
  int device = kHostMemory;

  ConstBuffer() = default;
  ConstBuffer(const void* data, DType dtype, int64_t elems,
              int device = kHostMemory)
      : data(data), dtype(dtype), elems(elems), device(device) {}
  // A buffer that may be written may be read.
  ConstBuffer(const Buffer& b)
      : ConstBuffer(b.data, b.dtype, b.elems, b.device) {}
};

// The element type of a C++ type; undefined for types no collective moves.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

// Example: comm.AllReduce(AsBuffer(std::span(values)), ReduceOp::kSum, "loss").
template <typename T>
Buffer AsBuffer(std::span<T> values) {
  return {values.data(), DTypeOf<T>::value,
          static_cast<int64_t>(values.size())};
}

}  // namespace collectives
