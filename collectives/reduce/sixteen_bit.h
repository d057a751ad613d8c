// 16-bit floats in memory, f32 to compute with: on vectors and without
// branches, where Eigen's conversions go one by one.
#pragma once

#include <cstdint>

namespace collectives {

// The upper half of an f32's bits.
struct BF16 {
  uint16_t bits;
};

// IEEE 754 binary16.
struct F16 {
  uint16_t bits;
};

// Eight values: as they are stored, and as they are computed with.
using Halves = uint16_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(32)));

// Not in the interface: the bits of Floats, unsigned to compute with, signed
// to compare, which is the only kind of comparison that the vector units have.
using FloatBits = uint32_t __attribute__((vector_size(32)));
using FloatOrder = int32_t __attribute__((vector_size(32)));

inline constexpr uint32_t kF32Sign = 0x8000'0000;
inline constexpr uint32_t kF32Infinity = 0x7f80'0000;
inline constexpr uint32_t kF32QuietBit = 0x0040'0000;

#define COLLECTIVES_INLINE [[gnu::always_inline]] inline

// `to` is `a` where `above` > `limit`, else `b`. Bits without sign.
COLLECTIVES_INLINE void SelectAbove(const FloatBits& above, uint32_t limit,
                                    const FloatBits& a, const FloatBits& b,
                                    FloatBits& to) {
  to =
      reinterpret_cast<FloatOrder>(above) > static_cast<int32_t>(limit) ? a : b;
}

// Both are exact.
COLLECTIVES_INLINE void Widen(BF16 /*type*/, const Halves& from, Floats& to) {
  to = reinterpret_cast<Floats>(__builtin_convertvector(from, FloatBits) << 16);
}

COLLECTIVES_INLINE void Widen(F16 /*type*/, const Halves& from, Floats& to) {
  constexpr uint32_t kRebias = (127u + 127 - 15) << 23;
  constexpr uint32_t kInfinity = 31u << 23;  // where the exponent now stands
  const FloatBits h = __builtin_convertvector(from, FloatBits);
  const FloatBits shifted = (h & 0x7fff) << 13;
  // The product normalises subnormal numbers too.
  const auto finite = reinterpret_cast<FloatBits>(
      reinterpret_cast<Floats>(shifted) * __builtin_bit_cast(float, kRebias));
  FloatBits value;
  SelectAbove(shifted, kInfinity - 1, shifted | kF32Infinity, finite, value);
  to = reinterpret_cast<Floats>(value | (h & 0x8000) << 16);
}

// Both round to nearest, ties to even, and keep a NaN one, with its sign.
COLLECTIVES_INLINE void Narrow(BF16 /*type*/, const Floats& from, Halves& to) {
  const auto bits = reinterpret_cast<FloatBits>(from);
  // Just under a half, and the last bit that stays: a tie goes up where that
  // makes it even. A carry runs into the exponent, as it should.
  const FloatBits rounded = bits + 0x7fff + ((bits >> 16) & 1);
  FloatBits value;
  SelectAbove(bits & ~kF32Sign, kF32Infinity, bits | kF32QuietBit, rounded,
              value);
  to = __builtin_convertvector(value >> 16, Halves);
}

COLLECTIVES_INLINE void Narrow(F16 /*type*/, const Floats& from, Halves& to) {
  constexpr uint32_t kLeastNormal = (127u - 14) << 23;  // 2^-14
  constexpr uint32_t kOverflow = (127u + 16) << 23;     // 2^16
  constexpr uint32_t kHalf = 126u << 23;                // 0.5
  const auto bits = reinterpret_cast<FloatBits>(from);
  const FloatBits size = bits & ~kF32Sign;
  // As for bf16, with the exponent moved. From 65520 on it carries to
  // infinity.
  const FloatBits normal =
      (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  // The sum has as many bits left as a subnormal number, and is rounded.
  const FloatBits subnormal =
      reinterpret_cast<FloatBits>(reinterpret_cast<Floats>(size) + 0.5F) -
      kHalf;
  FloatBits value, large;
  SelectAbove(size, kLeastNormal - 1, normal, subnormal, value);
  const FloatBits infinity = FloatBits{} + 0x7c00;
  SelectAbove(size, kF32Infinity, infinity + 0x200, infinity, large);
  SelectAbove(size, kOverflow - 1, large, value, value);
  to = __builtin_convertvector(value | (bits & kF32Sign) >> 16, Halves);
}

}  // namespace collectives
