// A switch for tools/bench_call_cost, and for nothing else.
#pragma once

namespace collectives {

// Built without records, matching and failure checks, to show what they cost.
#ifdef COLLECTIVES_BARE
inline constexpr bool kIsBare = true;
#else
inline constexpr bool kIsBare = false;
#endif

}  // namespace collectives
