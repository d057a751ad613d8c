// One rank's handle on a group of ranks: the public line of collectives/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/buffer.h"
#include "collectives/call.h"
#include "collectives/record/recorder.h"
#include "collectives/types.h"
#include "collectives/work.h"

namespace collectives {

// Every rank makes the same calls in the same order on each channel; calls
// match by channel and sequence number, and what they ask for is compared on
// every call. Numbers: a reduction folds ranks 0, 1, ..., N-1 in that order,
// 16-bit floats in f32 with one rounding at the end, so the bits are the same
// on all ranks, in every run, for every cut of the data.
//
// Blocks: AllReduce and its like until done; Start... never.
// Threads: one caller at a time for each rank; a second one is refused.
// Errors: InvalidArgument on the calling rank before anything is posted;
// PeerFailed when another rank has failed; the rest comes from Work::Wait.
// Labels say what a call is for in records and errors, and must match too.
//
// Example: see RunRanks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual const std::string& channel() const = 0;
  // This rank's records, over all channels.
  virtual Recorder& recorder() = 0;

  // A second channel over the same ranks, whose calls need no common order
  // with this one's. A collective itself: all ranks call it with one name.
  virtual std::unique_ptr<Communicator> Duplicate(std::string_view name) = 0;

  // The primitive behind all methods below.
  virtual Work Post(Call call) = 0;

  // In place. Result: the reduction, on every rank.
  void AllReduce(Buffer data, ReduceOp op, std::string_view label);
  Work StartAllReduce(Buffer data, ReduceOp op, std::string_view label);

  // Shape: input [sum of counts], output [counts[rank]]; counts may be uneven
  // or zero. In place when output is this rank's part of input.
  void ReduceScatter(ConstBuffer input, Buffer output,
                     const std::vector<int64_t>& counts, ReduceOp op,
                     std::string_view label);
  Work StartReduceScatter(ConstBuffer input, Buffer output,
                          const std::vector<int64_t>& counts, ReduceOp op,
                          std::string_view label);

  // Shape: input [counts[rank]], output [sum of counts]. In place when input
  // is this rank's part of output.
  void AllGather(ConstBuffer input, Buffer output,
                 const std::vector<int64_t>& counts, std::string_view label);
  Work StartAllGather(ConstBuffer input, Buffer output,
                      const std::vector<int64_t>& counts,
                      std::string_view label);

  // Result: root's data, on every rank.
  void Broadcast(Buffer data, int root, std::string_view label);
  Work StartBroadcast(Buffer data, int root, std::string_view label);

  // Returns once every rank has come.
  void Barrier(std::string_view label);
  Work StartBarrier(std::string_view label);
};

}  // namespace collectives
