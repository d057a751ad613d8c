// How the data of a matched call gets from rank to rank.
#pragma once

#include "collectives/call.h"

namespace collectives {

// Threads: one at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  // Blocks until this rank's result is complete and its input is free.
  // Errors: LinkError; what the result then holds is not defined.
  virtual void Run(const Call& call) = 0;
};

}  // namespace collectives
