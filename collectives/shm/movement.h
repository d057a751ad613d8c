// What a matched collective does to memory. No threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/call.h"
#include "collectives/reduce/fold.h"

namespace collectives {

// Bytes of memory, of all ranks together.
struct Traffic {
  int64_t read = 0;
  int64_t written = 0;

  Traffic& operator+=(const Traffic& other) {
    read += other.read;
    written += other.written;
    return *this;
  }
};

// The work of one matched collective over the elements [0, elems) of its
// whole buffer; any cut into ranges gives the same bits.
class Movement {
 public:
  // `calls`: one for each rank, in rank order, all matching. Once for each
  // collective; memory is used again.
  void Plan(std::span<const Call* const> calls);

  // How many elements have to be moved; 0 for barriers and for a single rank
  // whose result is already in place.
  int64_t elems() const { return elems_; }
  int64_t elem_bytes() const { return elem_bytes_; }

  // Result: what it took. Threads: any thread; disjoint ranges may run at once.
  Traffic Run(int64_t begin, int64_t elems) const;

 private:
  Traffic Fold(std::span<void* const> outputs, const FoldRange& range) const;
  Traffic ReduceScatter(int64_t begin, int64_t end) const;
  Traffic AllGather(int64_t begin, int64_t end) const;
  Traffic CopyToAll(const void* from, int64_t from_elem, int64_t to_elem,
                    int64_t elems) const;

  Operation operation_ = Operation::kBarrier;
  ReduceOp reduce_op_ = ReduceOp::kSum;
  DType dtype_ = DType::kU8;
  int root_ = 0;
  int64_t elems_ = 0;
  int64_t elem_bytes_ = 1;
  std::vector<int64_t> offsets_;  // of each rank's part, and the end
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace collectives
