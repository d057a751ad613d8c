// 16-bit floats in memory, f32 to compute with: as loops without branches,
// which vectorise, where Eigen's conversions go one by one.
#pragma once

#include <bit>
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

inline constexpr uint32_t kF32Sign = 0x8000'0000;
inline constexpr uint32_t kF32Infinity = 0x7f80'0000;
inline constexpr uint32_t kF32QuietBit = 0x0040'0000;

// Bits without sign compare as signed numbers, the only kind of comparison
// that the vector units have.
inline bool IsAbove(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a) > static_cast<int32_t>(b);
}

// `a` where `is_a`, else `b`, both computed: with a branch in sight the
// compiler would not compute a sum that may trap, and not vectorise the loop.
inline uint32_t Select(bool is_a, uint32_t a, uint32_t b) {
  const uint32_t mask = -static_cast<uint32_t>(is_a);
  return (a & mask) | (b & ~mask);
}

// Both are exact.
inline void Widen(const BF16* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i].bits) << 16);
  }
}

inline void Widen(const F16* from, int64_t n, float* to) {
  constexpr auto kRebias = std::bit_cast<float>((127u + 127 - 15) << 23);
  constexpr uint32_t kInfinity = 31u << 23;  // where the exponent now stands
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t h = from[i].bits;
    const uint32_t shifted = (h & 0x7fff) << 13;
    // The product normalises subnormal numbers too.
    const auto finite =
        std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * kRebias);
    const uint32_t value =
        Select(IsAbove(kInfinity, shifted), finite, shifted | kF32Infinity);
    to[i] = std::bit_cast<float>(value | (h & 0x8000) << 16);
  }
}

// Both round to nearest, ties to even, and keep a NaN one, with its sign.
inline void Narrow(const float* from, int64_t n, BF16* to) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    // Just under a half, and the last bit that stays: a tie goes up where that
    // makes it even. A carry runs into the exponent, as it should.
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const uint32_t quiet = bits | kF32QuietBit;
    const bool is_nan = IsAbove(bits & ~kF32Sign, kF32Infinity);
    to[i].bits = static_cast<uint16_t>(Select(is_nan, quiet, rounded) >> 16);
  }
}

inline void Narrow(const float* from, int64_t n, F16* to) {
  constexpr uint32_t kLeastNormal = (127u - 14) << 23;  // 2^-14
  constexpr uint32_t kOverflow = (127u + 16) << 23;     // 2^16
  constexpr uint32_t kHalf = 126u << 23;                // 0.5
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t size = bits & ~kF32Sign;
    // As for bf16, with the exponent moved. From 65520 on it carries to
    // infinity.
    const uint32_t normal =
        (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    // The sum has as many bits left as a subnormal number, and is rounded.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5F) - kHalf;
    const uint32_t large = Select(IsAbove(size, kF32Infinity), 0x7e00, 0x7c00);
    const uint32_t finite =
        Select(IsAbove(kLeastNormal, size), subnormal, normal);
    const uint32_t value = Select(IsAbove(kOverflow, size), finite, large);
    to[i].bits = static_cast<uint16_t>(value | (bits & kF32Sign) >> 16);
  }
}

}  // namespace collectives
