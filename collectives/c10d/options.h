// How processes talk to one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace collectives {

// Whose collectives move the data, once calls have matched.
enum class Library : uint8_t {
  kNone,  // ours: the bits of every other backend
  // The library's own all-reduce: another order of additions, so other bits,
  // and minimum and maximum may lose a NaN. The other operations stay ours.
  kGloo,
  // Everything that is in an accelerator's memory.
  kNccl,
};

inline std::string_view Name(Library library) {
  constexpr std::string_view kNames[] = {"trainsys", "Gloo", "NCCL"};
  return kNames[static_cast<size_t>(library)];
}

// The same on all ranks but for `host`; else no group is made.
struct C10dOptions {
  Library library = Library::kNone;
  // Calls are compared before data moves. Without it a mismatch hangs until
  // the timeout, or moves wrong data.
  bool is_matching = true;
  // The address by which the others reach this host; empty: the one that this
  // host uses to reach the store.
  std::string host;
};

}  // namespace collectives
