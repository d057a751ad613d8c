// What bench_collectives times.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/types.h"

namespace trainsys {

// One operation on one size. `bytes`: of the whole buffer, S of nccl-tests: an
// all-gather's output, a reduce-scatter's input. A barrier has none.
struct Case {
  collectives::Operation operation = collectives::Operation::kAllReduce;
  int ranks = 1;
  int64_t bytes = 0;
  collectives::DType dtype = collectives::DType::kF32;

  int64_t elems() const { return bytes / collectives::SizeOf(dtype); }
};

// What is timed: every combination of these.
struct Selection {
  std::vector<collectives::Operation> operations;
  std::vector<int> ranks;
  std::vector<int64_t> bytes;
  std::vector<collectives::DType> dtypes;
  std::vector<bool> is_async;
  // Cases in which all ranks' buffers together are larger are left out.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
};

// The whole table, and a part of it that takes under a minute.
Selection WholeTable();
Selection QuickTable();

// The cases of one number of ranks. Errors: InvalidArgument where a size is no
// whole number of elements.
std::vector<Case> CasesOf(const Selection& selection, int ranks);

// Where each rank's part of an even cut begins, and the end.
// Shape: [ranks + 1].
std::vector<int64_t> EvenOffsets(int64_t elems, int ranks);
std::vector<int64_t> EvenCounts(int64_t elems, int ranks);

// What each rank would send over a ring or a chain for each byte of the
// buffer; 0 for a barrier. Source: nccl-tests, doc/PERFORMANCE.md.
double BusFactor(const Case& what);

// "all-reduce", "f32", "64Ki", "64KiB" or "65536". Errors: InvalidArgument.
collectives::Operation ParseOperation(std::string_view text);
collectives::DType ParseDType(std::string_view text);
int64_t ParseBytes(const std::string& text);

std::string BytesText(int64_t bytes);  // "64 KiB"

}  // namespace trainsys
