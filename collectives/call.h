// One rank's part of a collective: the facts that all ranks must agree on and
// the memory it works on. Pure values; no threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/buffer.h"
#include "collectives/types.h"

namespace collectives {

struct Call {
  Operation operation = Operation::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  DType dtype = DType::kU8;
  // All-reduce and broadcast: elements of the buffer. Reduce-scatter and
  // all-gather: the sum of `counts`.
  int64_t elems = 0;
  // Elements of each rank's part; only reduce-scatter and all-gather have it.
  std::vector<int64_t> counts;
  int root = 0;  // broadcast only
  std::string label;
  // False promises that the caller waits at once; not compared with the peers.
  bool is_async = false;
  // Made again by a segment that runs a second time for backward.
  bool is_recomputed = false;

  // All-reduce and broadcast work in place: input == output.
  const void* input = nullptr;
  void* output = nullptr;
  int device = kHostMemory;  // of both; each rank has its own
};

// Errors: InvalidArgument when this call alone is wrong, whatever the peers
// do: null data, negative or overflowing sizes, counts that are not one a
// rank or do not add up to `elems`, a root outside [0, ranks), average of
// integers, input and output that overlap other than in place.
void Validate(const Call& call, int rank, int ranks);

// Errors: InvalidArgument for an accelerator's memory, where `backend` moves
// the host's only.
void RequireHostMemory(const Call& call, const std::string& backend);

// The sum of counts; the largest int64_t, which Validate refuses, if it
// overflows.
int64_t SumOf(const std::vector<int64_t>& counts);

// Elements before rank `rank`'s part.
int64_t OffsetOf(const Call& call, int rank);

// "all-reduce average f32 x 1024 'bucket 3'", " (recomputed)" where it is
std::string Describe(const Call& call);

// Whether the calls of two ranks ask for the same.
bool Matches(const Call& a, const Call& b);

// Which facts differ, as words: "elements, label". Empty: the calls match.
std::string Differences(const Call& a, const Call& b);

// What to say of the ranks' calls, in rank order, if they differ: "the ranks'
// calls differ in label: [rank 0 1: ...] [rank 2: ...]". Empty: they match.
std::string Mismatch(std::span<const Call* const> calls);

// The bytes one rank sends over a network in the usual algorithm (ring for
// the reductions and the gather, pipelined chain for broadcast). Shared
// memory itself sends nothing.
//   all-reduce 2S(N-1)/N, reduce-scatter and all-gather S(N-1)/N, where S is
//   the whole buffer; broadcast S on every rank but the chain's last, counted
//   as S(N-1)/N on each; barrier 0. Rounded down.
int64_t SentBytes(const Call& call, int ranks);

}  // namespace collectives
