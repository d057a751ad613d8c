// What a part keeps in memory, whatever it says that it keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "trainsys/memory/ledger.h"

namespace trainsys {

// The bytes that calls leave behind in the host memory of a ledger, without
// those of gradients; those of the parameters are the same before and after,
// wherever a call may put them.
//
// Units: bytes as libtorch's allocator was asked for them, so with what pads
//   tensors to their alignment.
// Not seen: as MemoryLedger.
// Threads: the ledger's rank's own thread.
class KeptBytes {
 public:
  // Lifetime: `ledger` outlives it, and is that of the calling thread.
  KeptBytes(const MemoryLedger& ledger, std::vector<at::Tensor> parameters)
      : ledger_(ledger), parameters_(std::move(parameters)) {}

  void Count(const std::function<void()>& call);
  // Of all calls so far.
  int64_t bytes() const { return bytes_; }

 private:
  const MemoryLedger& ledger_;
  const std::vector<at::Tensor> parameters_;
  int64_t bytes_ = 0;
};

}  // namespace trainsys
