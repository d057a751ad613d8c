#include "tests/collectives/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace collectives {
namespace {

constexpr std::byte kPoison{0xA5};
constexpr int64_t kMargin = 64;  // bytes; keeps the start aligned

struct F16 {
  using Acc = float;
  uint16_t bits;
};
struct BF16 {
  using Acc = float;
  uint16_t bits;
};

template <typename T>
T Load(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// The type a fold is computed in; unsigned so that overflow is defined.
template <typename T>
auto Widen(T value) {
  if constexpr (std::is_same_v<T, F16>) {
    return FromF16(value.bits);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return FromBF16(value.bits);
  } else {
    return value;
  }
}

template <typename T, typename Acc>
T Narrow(Acc value) {
  if constexpr (std::is_same_v<T, F16>) {
    return {ToF16(value)};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return {ToBF16(value)};
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool IsNan(T value) {
  return value != value;
}

template <typename T>
T Extreme(bool is_min, T a, T b) {
  if (IsNan(a)) return a;
  if (IsNan(b)) return b;
  return (is_min ? a < b : b < a) ? a : b;
}

template <typename T>
T Arithmetic(bool is_product, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<T>(is_product ? x * y : x + y);
  } else {
    return is_product ? a * b : a + b;
  }
}

template <typename T>
Bytes FoldAs(ReduceOp op, const std::vector<Bytes>& values) {
  Bytes result(values[0].size());
  for (size_t i = 0; i < result.size() / sizeof(T); ++i) {
    auto acc = Widen(Load<T>(values[0], i));
    for (size_t r = 1; r < values.size(); ++r) {
      const auto next = Widen(Load<T>(values[r], i));
      const bool is_extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
      acc = is_extreme ? Extreme(op == ReduceOp::kMin, acc, next)
                       : Arithmetic(op == ReduceOp::kProduct, acc, next);
    }
    if (op == ReduceOp::kAverage) {
      acc = static_cast<decltype(acc)>(
          acc / static_cast<decltype(acc)>(values.size()));
    }
    Store<T>(result, i, Narrow<T>(acc));
  }
  return result;
}

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
uint64_t Mix(uint64_t counter) {
  uint64_t x = counter * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

template <typename T>
Bytes RandomAs(int64_t elems, uint64_t seed) {
  uint64_t state = seed << 32;
  Bytes result(static_cast<size_t>(elems) * sizeof(T));
  for (size_t i = 0; i < static_cast<size_t>(elems); ++i) {
    const uint64_t bits = Mix(++state);
    if constexpr (std::is_integral_v<T>) {
      Store<T>(result, i, static_cast<T>(bits));
    } else {
      // 0.25 to 4: products stay finite, sums round.
      const double mantissa = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
      const double scale = std::ldexp(1.0, static_cast<int>(bits % 4) - 2);
      const double value = (bits & 8 ? -1 : 1) * mantissa * scale;
      using Acc = decltype(Widen(T{}));
      Store<T>(result, i, Narrow<T>(static_cast<Acc>(value)));
    }
  }
  return result;
}

template <typename Fn>
auto Dispatch(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kF64:
      return fn(double{});
    case DType::kF32:
      return fn(float{});
    case DType::kBF16:
      return fn(BF16{});
    case DType::kF16:
      return fn(F16{});
    case DType::kI64:
      return fn(int64_t{});
    case DType::kI32:
      return fn(int32_t{});
    case DType::kU8:
      break;
  }
  return fn(uint8_t{});
}

}  // namespace

uint16_t ToF16(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

float FromF16(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

// To nearest, ties to even; NaN stays NaN.
uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (IsNan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

Bytes RandomValues(DType dtype, int64_t elems, uint64_t seed) {
  return Dispatch(
      dtype, [&](auto type) { return RandomAs<decltype(type)>(elems, seed); });
}

Bytes SerialFold(DType dtype, ReduceOp op, const std::vector<Bytes>& values) {
  return Dispatch(
      dtype, [&](auto type) { return FoldAs<decltype(type)>(op, values); });
}

Bytes Slice(const Bytes& values, DType dtype, int64_t begin, int64_t elems) {
  const auto from = values.begin() + begin * SizeOf(dtype);
  return Bytes(from, from + elems * SizeOf(dtype));
}

PoisonedBuffer::PoisonedBuffer(DType dtype, int64_t elems)
    : PoisonedBuffer(dtype, elems, SizeOf(dtype)) {}

PoisonedBuffer::PoisonedBuffer(DType dtype, int64_t elems, int64_t start_bytes)
    : elem_bytes_(SizeOf(dtype)),
      size_bytes_(elems * elem_bytes_),
      begin_(kMargin + start_bytes),
      memory_(static_cast<size_t>(begin_ + size_bytes_ + kMargin), kPoison) {}

PoisonedBuffer::PoisonedBuffer(DType dtype, const Bytes& values)
    : PoisonedBuffer(dtype, values, SizeOf(dtype)) {}

PoisonedBuffer::PoisonedBuffer(DType dtype, const Bytes& values,
                               int64_t start_bytes)
    : PoisonedBuffer(dtype, static_cast<int64_t>(values.size()) / SizeOf(dtype),
                     start_bytes) {
  if (!values.empty()) std::memcpy(data(), values.data(), values.size());
}

void* PoisonedBuffer::At(int64_t elem) {
  return memory_.data() + begin_ + elem * elem_bytes_;
}

bool PoisonedBuffer::Holds(const Bytes& expected) const {
  return static_cast<int64_t>(expected.size()) == size_bytes_ &&
         (expected.empty() ||
          std::memcmp(memory_.data() + begin_, expected.data(),
                      expected.size()) == 0);
}

bool PoisonedBuffer::IsPoisonIntact() const {
  const auto begin = memory_.begin() + begin_;
  const auto is_poison = [](std::byte b) { return b == kPoison; };
  return std::all_of(memory_.begin(), begin, is_poison) &&
         std::all_of(begin + size_bytes_, memory_.end(), is_poison);
}

}  // namespace collectives
