// Do all ranks hold the same values?
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace trainsys {

// One tensor whose bits are not the same everywhere.
struct OutOfSync {
  size_t index = 0;        // in the list given
  std::vector<int> ranks;  // that differ from rank 0
};

// Compares each tensor's bits across ranks, by hash. A collective: every rank
// calls it with tensors of the same number and order.
// Result: the same on every rank; empty when all are in sync.
// Cost: one all-gather of 8 bytes a tensor and rank.
std::vector<OutOfSync> CheckInSync(const std::vector<at::Tensor>& tensors,
                                   collectives::Communicator& comm);

// "1 of 8 tensors differ from rank 0: ['w' on rank 1 2]". Empty when in sync.
// `names`: of all the tensors compared.
std::string Describe(const std::vector<OutOfSync>& differences,
                     const std::vector<std::string>& names);

}  // namespace trainsys
