// What a collective gives this rank, as a value.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "tests/collectives/oracle.h"

namespace collectives {

Bytes AllReduced(Communicator& comm, DType dtype, ReduceOp op, Bytes values);
Bytes ReduceScattered(Communicator& comm, DType dtype, ReduceOp op,
                      const Bytes& values, const std::vector<int64_t>& counts);
Bytes AllGathered(Communicator& comm, DType dtype, const Bytes& part,
                  const std::vector<int64_t>& counts);

}  // namespace collectives
