// What a collective is made of: operations, reductions, element types.
#pragma once

#include <cstdint>
#include <string_view>

namespace collectives {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU8 };

// kAverage folds as kSum and divides once; it is refused for integers.
// kMin and kMax propagate NaN. Integer sums and products wrap around.
enum class ReduceOp : uint8_t { kSum, kAverage, kProduct, kMin, kMax };

enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kDuplicate,  // makes a channel; moves no data
};

int64_t SizeOf(DType dtype);  // bytes of one element
bool IsInteger(DType dtype);
bool Reduces(Operation operation);  // has a reduce op

std::string_view Name(DType dtype);          // "f32"
std::string_view Name(ReduceOp op);          // "sum"
std::string_view Name(Operation operation);  // "all-reduce"

}  // namespace collectives
