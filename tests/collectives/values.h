// Chosen values as the bytes of any dtype, and back.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "collectives/types.h"
#include "tests/collectives/oracle.h"

namespace collectives {

inline constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBF16,
                                    DType::kF16};
inline constexpr DType kIntegers[] = {DType::kI64, DType::kI32, DType::kU8};
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAverage,
                                          ReduceOp::kProduct, ReduceOp::kMin,
                                          ReduceOp::kMax};

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<T> ValuesOf(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Values that every dtype holds exactly, as `dtype`.
Bytes Cast(DType dtype, const std::vector<float>& values);

// Of a float dtype.
std::vector<float> Floats(DType dtype, const Bytes& bytes);

}  // namespace collectives
