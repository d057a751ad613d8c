// How processes talk to one another.
#pragma once

#include <string>

namespace collectives {

// The same on all ranks but for `host`; else no group is made.
struct C10dOptions {
  // All-reduces are the library's own: another order of additions, so other
  // bits, and NaN may be lost by minimum and maximum.
  bool is_native = false;
  // Calls are compared before data moves. Without it a mismatch hangs until
  // the timeout, or moves wrong data.
  bool is_matching = true;
  // The address by which the others reach this host; empty: the one that this
  // host uses to reach the store.
  std::string host;
};

}  // namespace collectives
