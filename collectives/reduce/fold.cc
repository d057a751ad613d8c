#include "collectives/reduce/fold.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <type_traits>

#include "collectives/reduce/sixteen_bit.h"

namespace collectives {
namespace {

// 512 bytes of f32: with it, one block of each source and destination stays
// in the first-level cache for dozens of ranks.
constexpr int64_t kBlock = 128;

template <typename T>
constexpr bool kIs16Bit = std::is_same_v<T, BF16> || std::is_same_v<T, F16>;

// The type in which a fold of T is computed. Integers wrap around, which is
// defined for unsigned types only; minimum and maximum need the sign.
template <typename T, ReduceOp op>
struct Accumulator {
  using type = T;
};
template <ReduceOp op>
struct Accumulator<F16, op> {
  using type = float;
};
template <ReduceOp op>
struct Accumulator<BF16, op> {
  using type = float;
};
template <ReduceOp op>
requires(op == ReduceOp::kSum ||
         op == ReduceOp::kProduct) struct Accumulator<int64_t, op> {
  using type = uint64_t;
};
template <ReduceOp op>
requires(op == ReduceOp::kSum ||
         op == ReduceOp::kProduct) struct Accumulator<int32_t, op> {
  using type = uint32_t;
};

template <ReduceOp op, typename Acc, typename Values>
void Combine(Acc& acc, const Values& values) {
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAverage) {
    acc += values;
  } else if constexpr (op == ReduceOp::kProduct) {
    acc *= values;
  } else {
    using T = typename Acc::Scalar;
    // Whichever is NaN stays: every comparison with it is false.
    acc = acc.binaryExpr(values, [](T a, T b) {
      return (op == ReduceOp::kMin ? a < b : a > b) || a != a ? a : b;
    });
  }
}

template <typename T, ReduceOp op>
void FoldAll(std::span<const void* const> sources,
             std::span<void* const> destinations, const FoldRange& range) {
  using Acc = typename Accumulator<T, op>::type;
  using Values = Eigen::Array<T, Eigen::Dynamic, 1>;
  using Block = Eigen::Array<Acc, Eigen::Dynamic, 1, 0, kBlock, 1>;
  Block acc;
  // Of 16-bit floats only: one block as it is computed with, and as it is
  // stored.
  [[maybe_unused]] Block wide;
  [[maybe_unused]] std::array<T, kBlock> narrow;
  for (int64_t at = 0; at < range.elems; at += kBlock) {
    const int64_t n = std::min(kBlock, range.elems - at);
    const auto block = [&, from = range.source_begin + at](const void* source) {
      const T* const values = static_cast<const T*>(source) + from;
      if constexpr (kIs16Bit<T>) {
        wide.resize(n);
        Widen(values, n, wide.data());
        return Eigen::Map<const Block>(wide.data(), n);
      } else {
        return Eigen::Map<const Values>(values, n).template cast<Acc>();
      }
    };
    acc = block(sources[0]);
    for (const void* source : sources.subspan(1)) {
      Combine<op>(acc, block(source));
    }
    if constexpr (op == ReduceOp::kAverage) {
      acc /= static_cast<Acc>(sources.size());
    }
    if constexpr (kIs16Bit<T>) Narrow(acc.data(), n, narrow.data());
    for (void* destination : destinations) {
      T* const to = static_cast<T*>(destination) + range.destination_begin + at;
      if constexpr (kIs16Bit<T>) {
        std::copy_n(narrow.data(), n, to);
      } else {
        Eigen::Map<Values>(to, n) = acc.template cast<T>();
      }
    }
  }
}

template <typename T>
void FoldWith(ReduceOp op, std::span<const void* const> sources,
              std::span<void* const> destinations, const FoldRange& range) {
  switch (op) {
    case ReduceOp::kSum:
      return FoldAll<T, ReduceOp::kSum>(sources, destinations, range);
    case ReduceOp::kAverage:
      // Validate refuses the average of integers.
      if constexpr (!std::is_integral_v<T>) {
        FoldAll<T, ReduceOp::kAverage>(sources, destinations, range);
      }
      return;
    case ReduceOp::kProduct:
      return FoldAll<T, ReduceOp::kProduct>(sources, destinations, range);
    case ReduceOp::kMin:
      return FoldAll<T, ReduceOp::kMin>(sources, destinations, range);
    case ReduceOp::kMax:
      return FoldAll<T, ReduceOp::kMax>(sources, destinations, range);
  }
}

}  // namespace

void Fold(DType dtype, ReduceOp op, std::span<const void* const> sources,
          std::span<void* const> destinations, const FoldRange& range) {
  if (sources.empty()) return;
  switch (dtype) {
    case DType::kF64:
      return FoldWith<double>(op, sources, destinations, range);
    case DType::kF32:
      return FoldWith<float>(op, sources, destinations, range);
    case DType::kBF16:
      return FoldWith<BF16>(op, sources, destinations, range);
    case DType::kF16:
      return FoldWith<F16>(op, sources, destinations, range);
    case DType::kI64:
      return FoldWith<int64_t>(op, sources, destinations, range);
    case DType::kI32:
      return FoldWith<int32_t>(op, sources, destinations, range);
    case DType::kU8:
      return FoldWith<uint8_t>(op, sources, destinations, range);
  }
}

}  // namespace collectives
