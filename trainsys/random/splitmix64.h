#pragma once

#include <cstdint>

namespace trainsys {

// A 64-bit integer generator whose numbers are the same on every platform.
// Also the project's mixer: Mix() spreads every input bit over all output bits.
//
// Threads: one at a time (the state is plain).
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators",
// OOPSLA 2014.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Finish(state_ += kGamma); }

  // A number in [0, bound); bound >= 1. The modulo's bias is below
  // bound / 2^64, which nothing here can notice.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

  // One number from two. Chain it to mix more: Mix(Mix(seed, step), rank).
  static uint64_t Mix(uint64_t a, uint64_t b) {
    return Finish(Finish(a + kGamma) + b + kGamma);
  }

 private:
  static constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

  static uint64_t Finish(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace trainsys
