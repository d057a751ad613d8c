#include "collectives/communicator.h"

#include <utility>

#include "collectives/errors.h"
#include "collectives/recomputing.h"

namespace collectives {
namespace {

Call NewCall(Operation operation, std::string_view label) {
  Call call;
  call.operation = operation;
  call.label = label;
  call.is_recomputed = IsRecomputing();
  return call;
}

Call AllReduceCall(Buffer data, ReduceOp op, std::string_view label) {
  Call call = NewCall(Operation::kAllReduce, label);
  call.reduce_op = op;
  call.dtype = data.dtype;
  call.elems = data.elems;
  call.input = data.data;
  call.output = data.data;
  call.device = data.device;
  return call;
}

// Reduce-scatter or all-gather.
Call PartsCall(Operation operation, ConstBuffer input, Buffer output,
               const std::vector<int64_t>& counts, std::string_view label) {
  Call call = NewCall(operation, label);
  call.dtype = input.dtype;
  call.elems = SumOf(counts);
  call.counts = counts;
  call.input = input.data;
  call.output = output.data;
  call.device = output.device;
  return call;
}

// `whole` and `part`: what was given for the whole buffer and for this rank's
// part of it.
void CheckSizes(const Call& call, int rank, ConstBuffer whole,
                ConstBuffer part) {
  const auto refuse = [&call](const std::string& why) {
    throw InvalidArgument(std::string(Name(call.operation)) + " '" +
                          call.label + "': " + why);
  };
  if (whole.dtype != part.dtype) {
    refuse("input and output have different dtypes; expected one");
  }
  if (whole.device != part.device) {
    refuse("input and output are on different devices; expected one");
  }
  const int64_t part_elems = rank < static_cast<int>(call.counts.size())
                                 ? call.counts[rank]
                                 : part.elems;
  if (whole.elems != call.elems || part.elems != part_elems) {
    refuse("buffers of " + std::to_string(whole.elems) + " and " +
           std::to_string(part.elems) + " elements, the counts ask for " +
           std::to_string(call.elems) + " and " + std::to_string(part_elems));
  }
}

Call Asynchronous(Call call) {
  call.is_async = true;
  return call;
}

Call ReduceScatterCall(int rank, ConstBuffer input, Buffer output,
                       const std::vector<int64_t>& counts, ReduceOp op,
                       std::string_view label) {
  Call call =
      PartsCall(Operation::kReduceScatter, input, output, counts, label);
  call.reduce_op = op;
  CheckSizes(call, rank, input, output);
  return call;
}

Call AllGatherCall(int rank, ConstBuffer input, Buffer output,
                   const std::vector<int64_t>& counts, std::string_view label) {
  Call call = PartsCall(Operation::kAllGather, input, output, counts, label);
  CheckSizes(call, rank, output, input);
  return call;
}

Call BroadcastCall(Buffer data, int root, std::string_view label) {
  Call call = NewCall(Operation::kBroadcast, label);
  call.dtype = data.dtype;
  call.elems = data.elems;
  call.root = root;
  call.input = data.data;
  call.output = data.data;
  call.device = data.device;
  return call;
}

}  // namespace

void Communicator::AllReduce(Buffer data, ReduceOp op, std::string_view label) {
  Post(AllReduceCall(data, op, label)).Wait();
}

Work Communicator::StartAllReduce(Buffer data, ReduceOp op,
                                  std::string_view label) {
  return Post(Asynchronous(AllReduceCall(data, op, label)));
}

void Communicator::ReduceScatter(ConstBuffer input, Buffer output,
                                 const std::vector<int64_t>& counts,
                                 ReduceOp op, std::string_view label) {
  Post(ReduceScatterCall(rank(), input, output, counts, op, label)).Wait();
}

Work Communicator::StartReduceScatter(ConstBuffer input, Buffer output,
                                      const std::vector<int64_t>& counts,
                                      ReduceOp op, std::string_view label) {
  return Post(Asynchronous(
      ReduceScatterCall(rank(), input, output, counts, op, label)));
}

void Communicator::AllGather(ConstBuffer input, Buffer output,
                             const std::vector<int64_t>& counts,
                             std::string_view label) {
  Post(AllGatherCall(rank(), input, output, counts, label)).Wait();
}

Work Communicator::StartAllGather(ConstBuffer input, Buffer output,
                                  const std::vector<int64_t>& counts,
                                  std::string_view label) {
  return Post(
      Asynchronous(AllGatherCall(rank(), input, output, counts, label)));
}

void Communicator::Broadcast(Buffer data, int root, std::string_view label) {
  Post(BroadcastCall(data, root, label)).Wait();
}

Work Communicator::StartBroadcast(Buffer data, int root,
                                  std::string_view label) {
  return Post(Asynchronous(BroadcastCall(data, root, label)));
}

void Communicator::Barrier(std::string_view label) {
  Post(NewCall(Operation::kBarrier, label)).Wait();
}

Work Communicator::StartBarrier(std::string_view label) {
  return Post(Asynchronous(NewCall(Operation::kBarrier, label)));
}

}  // namespace collectives
