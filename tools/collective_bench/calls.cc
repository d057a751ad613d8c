#include "tools/collective_bench/calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/errors.h"
#include "collectives/reduce/fold.h"

namespace trainsys {
namespace {

using collectives::Buffer;
using collectives::Communicator;
using collectives::DType;
using collectives::Fold;
using collectives::Operation;
using collectives::ReduceOp;
using collectives::Work;

// A rank's views of its own buffer.
struct Views {
  Buffer all;
  Buffer mine;  // its part of an even cut
  std::vector<int64_t> counts;
};

Views ViewsOf(const Case& what, int rank, void* data) {
  Views views;
  const auto at = static_cast<size_t>(rank);
  views.counts = EvenCounts(what.elems(), what.ranks);
  views.all = {data, what.dtype, what.elems()};
  views.mine = {
      static_cast<std::byte*>(data) +
          EvenOffsets(what.elems(), what.ranks)[at] * SizeOf(what.dtype),
      what.dtype, views.counts[at]};
  return views;
}

std::function<Work()> StartOf(Communicator& comm, Operation operation,
                              Views v) {
  switch (operation) {
    case Operation::kAllReduce:
      return [&comm, v] {
        return comm.StartAllReduce(v.all, ReduceOp::kSum, "bench");
      };
    case Operation::kReduceScatter:
      return [&comm, v] {
        return comm.StartReduceScatter(v.all, v.mine, v.counts, ReduceOp::kSum,
                                       "bench");
      };
    case Operation::kAllGather:
      return [&comm, v] {
        return comm.StartAllGather(v.mine, v.all, v.counts, "bench");
      };
    case Operation::kBroadcast:
      return [&comm, v] { return comm.StartBroadcast(v.all, 0, "bench"); };
    case Operation::kBarrier:
      return [&comm] { return comm.StartBarrier("bench"); };
    case Operation::kDuplicate:
      break;
  }
  throw collectives::InvalidArgument("an operation that is not timed");
}

std::function<void()> BlockingOf(Communicator& comm, Operation operation,
                                 Views v) {
  switch (operation) {
    case Operation::kAllReduce:
      return [&comm, v] { comm.AllReduce(v.all, ReduceOp::kSum, "bench"); };
    case Operation::kReduceScatter:
      return [&comm, v] {
        comm.ReduceScatter(v.all, v.mine, v.counts, ReduceOp::kSum, "bench");
      };
    case Operation::kAllGather:
      return [&comm, v] { comm.AllGather(v.mine, v.all, v.counts, "bench"); };
    case Operation::kBroadcast:
      return [&comm, v] { comm.Broadcast(v.all, 0, "bench"); };
    case Operation::kBarrier:
      return [&comm] { comm.Barrier("bench"); };
    case Operation::kDuplicate:
      break;
  }
  throw collectives::InvalidArgument("an operation that is not timed");
}

// Reads a block once and writes it to each destination while it is in cache.
void CopyToAll(const void* source, const std::vector<void*>& destinations,
               int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 16 << 10;
  for (int64_t at = begin; at < end; at += kBlock) {
    const auto bytes = static_cast<size_t>(std::min(kBlock, end - at));
    for (void* destination : destinations) {
      std::memcpy(static_cast<std::byte*>(destination) + at,
                  static_cast<const std::byte*>(source) + at, bytes);
    }
  }
}

std::function<void()> FoldFloor(const Case& what, int rank,
                                const std::vector<void*>& buffers) {
  const DType dtype = what.dtype == DType::kBF16 ? DType::kI32 : what.dtype;
  const auto offsets = EvenOffsets(what.bytes / SizeOf(dtype), what.ranks);
  const auto at = static_cast<size_t>(rank);
  const int64_t begin = offsets[at], elems = offsets[at + 1] - begin;
  const std::vector<const void*> sources(buffers.begin(), buffers.end());
  const bool is_for_all = what.operation == Operation::kAllReduce;
  const auto destinations =
      is_for_all ? buffers : std::vector<void*>{buffers[at]};
  return [=] {
    if (elems == 0) return;
    Fold(dtype, ReduceOp::kSum, sources, destinations, {begin, begin, elems});
  };
}

// Rank r copies part r: its own in an all-gather, the root's in a broadcast.
std::function<void()> CopyFloor(const Case& what, int rank,
                                const std::vector<void*>& buffers) {
  const auto at = static_cast<size_t>(rank);
  const size_t owner = what.operation == Operation::kAllGather ? at : 0;
  const auto offsets = EvenOffsets(what.elems(), what.ranks);
  const int64_t begin = offsets[at] * SizeOf(what.dtype);
  const int64_t end = offsets[at + 1] * SizeOf(what.dtype);
  std::vector<void*> others = buffers;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(owner));
  return
      [=, source = buffers[owner]] { CopyToAll(source, others, begin, end); };
}

}  // namespace

std::function<void()> CallOf(Communicator& comm, const Case& what, void* data,
                             bool is_async) {
  Views views = ViewsOf(what, comm.rank(), data);
  if (!is_async) return BlockingOf(comm, what.operation, std::move(views));
  return [start = StartOf(comm, what.operation, std::move(views))] {
    start().Wait();
  };
}

std::function<void()> FloorOf(const Case& what, int rank,
                              const std::vector<void*>& buffers) {
  return Reduces(what.operation) ? FoldFloor(what, rank, buffers)
                                 : CopyFloor(what, rank, buffers);
}

}  // namespace trainsys
