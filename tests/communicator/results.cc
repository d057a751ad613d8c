#include "tests/communicator/results.h"

namespace collectives {

Bytes AllReduced(Communicator& comm, DType dtype, ReduceOp op, Bytes values) {
  const auto bytes = static_cast<int64_t>(values.size());
  comm.AllReduce({values.data(), dtype, bytes / SizeOf(dtype)}, op, "x");
  return values;
}

Bytes ReduceScattered(Communicator& comm, DType dtype, ReduceOp op,
                      const Bytes& values, const std::vector<int64_t>& counts) {
  const int64_t mine = counts[static_cast<size_t>(comm.rank())];
  Bytes part(static_cast<size_t>(mine * SizeOf(dtype)));
  const auto bytes = static_cast<int64_t>(values.size());
  comm.ReduceScatter({values.data(), dtype, bytes / SizeOf(dtype)},
                     {part.data(), dtype, mine}, counts, op, "x");
  return part;
}

Bytes AllGathered(Communicator& comm, DType dtype, const Bytes& part,
                  const std::vector<int64_t>& counts) {
  Bytes all(static_cast<size_t>(SumOf(counts) * SizeOf(dtype)));
  comm.AllGather({part.data(), dtype, counts[static_cast<size_t>(comm.rank())]},
                 {all.data(), dtype, SumOf(counts)}, counts, "x");
  return all;
}

}  // namespace collectives
