#include "collectives/reduce/fold.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "collectives/reduce/sixteen_bit.h"

namespace collectives {
namespace {

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

// One register of AVX, two of SSE or NEON, in which as many elements are
// folded at once. Everything that takes them is inlined into a function that
// knows which.
template <typename Acc>
struct VectorOf {
  // NOLINTNEXTLINE: of a template's argument only a typedef can be a vector.
  typedef Acc type __attribute__((vector_size(32)));
};

template <typename T, ReduceOp op>
class Folder {
 public:
  using Acc = typename Accumulator<T, op>::type;
  using Vector = typename VectorOf<Acc>::type;
  static constexpr int64_t kLanes = sizeof(Vector) / sizeof(Acc);
  // So many stay in registers, and each source is read 256 bytes at a time.
  static constexpr int kVectors = 8;

  COLLECTIVES_INLINE static void Fold(std::span<const void* const> sources,
                                      std::span<void* const> destinations,
                                      const FoldRange& range) {
    constexpr int64_t kBlock = kVectors * kLanes;
    int64_t at = 0;
    for (; at + kBlock <= range.elems; at += kBlock) {
      FoldBlock<kVectors>(sources, destinations, range, at, kLanes);
    }
    for (; at + kLanes <= range.elems; at += kLanes) {
      FoldBlock<1>(sources, destinations, range, at, kLanes);
    }
    if (at < range.elems) {
      FoldBlock<1>(sources, destinations, range, at, range.elems - at);
    }
  }

 private:
  // `lanes`: how many of each vector's to load and store.
  template <int vectors>
  COLLECTIVES_INLINE static void FoldBlock(std::span<const void* const> sources,
                                           std::span<void* const> destinations,
                                           const FoldRange& range, int64_t at,
                                           int64_t lanes) {
    Vector acc[vectors];
    const int64_t from = range.source_begin + at;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Load(sources[0], from + v * kLanes, lanes, acc[v]);
    }
    for (size_t s = 1; s < sources.size(); ++s) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        Vector values;
        Load(sources[s], from + v * kLanes, lanes, values);
        Combine(acc[v], values);
      }
    }
    if constexpr (op == ReduceOp::kAverage) {
      const auto ranks = static_cast<Acc>(sources.size());
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) acc[v] /= ranks;
    }
    Store<vectors>(acc, destinations, range.destination_begin + at, lanes);
  }

  COLLECTIVES_INLINE static void Combine(Vector& acc, const Vector& values) {
    if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAverage) {
      acc += values;
    } else if constexpr (op == ReduceOp::kProduct) {
      acc *= values;
    } else if constexpr (op == ReduceOp::kMin) {
      // Whichever is NaN stays: every comparison with it is false.
      acc = ((acc < values) | (acc != acc)) ? acc : values;
    } else {
      acc = ((acc > values) | (acc != acc)) ? acc : values;
    }
  }

  COLLECTIVES_INLINE static void Load(const void* memory, int64_t elem,
                                      int64_t lanes, Vector& to) {
    const T* const from = static_cast<const T*>(memory) + elem;
    if constexpr (kIs16Bit<T>) {
      Halves halves{};
      Copy(from, lanes, &halves);
      Widen(T{}, halves, to);
    } else {
      to = Vector{};
      Copy(from, lanes, &to);
    }
  }

  template <int vectors>
  COLLECTIVES_INLINE static void Store(const Vector (&acc)[vectors],
                                       std::span<void* const> destinations,
                                       int64_t elem, int64_t lanes) {
    if constexpr (kIs16Bit<T>) {
      Halves narrow[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) Narrow(T{}, acc[v], narrow[v]);
      StoreAll<vectors>(narrow, destinations, elem, lanes);
    } else {
      StoreAll<vectors>(acc, destinations, elem, lanes);
    }
  }

  template <int vectors, typename Stored>
  COLLECTIVES_INLINE static void StoreAll(const Stored (&values)[vectors],
                                          std::span<void* const> destinations,
                                          int64_t elem, int64_t lanes) {
    for (void* destination : destinations) {
      T* const to = static_cast<T*>(destination) + elem;
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        Copy(&values[v], lanes, to + v * kLanes);
      }
    }
  }

  // Of all lanes in one instruction, from and to any address.
  COLLECTIVES_INLINE static void Copy(const void* from, int64_t lanes,
                                      void* to) {
    if (lanes == kLanes) {
      std::memcpy(to, from, kLanes * sizeof(T));
    } else {
      std::memcpy(to, from, static_cast<size_t>(lanes) * sizeof(T));
    }
  }
};

// The same numbers either way: no operation here depends on the width.
#if defined(__x86_64__)
template <typename T, ReduceOp op>
[[gnu::target("avx2")]] void FoldWide(std::span<const void* const> sources,
                                      std::span<void* const> destinations,
                                      const FoldRange& range) {
  Folder<T, op>::Fold(sources, destinations, range);
}
#endif

template <typename T, ReduceOp op>
void FoldAll(std::span<const void* const> sources,
             std::span<void* const> destinations, const FoldRange& range) {
#if defined(__x86_64__)
  static const bool is_wide = __builtin_cpu_supports("avx2");
  if (is_wide) return FoldWide<T, op>(sources, destinations, range);
#endif
  Folder<T, op>::Fold(sources, destinations, range);
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
