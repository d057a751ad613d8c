// What bench_call_cost times. For two builds that share nothing else.
#pragma once

#include <array>
#include <cstddef>

namespace trainsys {

struct CallCase {
  int ranks;
  size_t elems;  // f32
  const char* name;
};

inline constexpr std::array<CallCase, 3> kCallCases{
    {{1, 1, "1 rank, 4 B"},
     {2, 1, "2 ranks, 4 B"},
     {2, 4096, "2 ranks, 16 KiB"}}};

}  // namespace trainsys
