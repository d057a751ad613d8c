// A random collective whose result every rank can work out by itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "tests/collectives/oracle.h"

namespace trainsys {

// Random values of every type; what a rank sends is a piece of them. Making it
// anew each time would take most of the program's time.
// Threads: any thread.
class SoakValues {
 public:
  explicit SoakValues(uint64_t seed);

  collectives::Bytes Piece(collectives::DType dtype, int64_t elems,
                           uint64_t where) const;

 private:
  std::array<collectives::Bytes, 7> values_;  // by dtype
};

// Which collective it is. All that is random about it follows from this, so
// that the ranks agree.
struct SoakPosition {
  uint64_t seed = 0;
  int channel = 0;
  uint64_t sequence = 0;
  int ranks = 1;
};

// One rank's part of it, with its memory.
// Threads: one at a time. Lifetime: that of the Work that Post returns.
class SoakCall {
 public:
  SoakCall(const SoakPosition& position, int rank, const SoakValues& values);

  collectives::Work Post(collectives::Communicator& comm);       // to be waited
  collectives::Work PostAsync(collectives::Communicator& comm);  // or not

  int64_t bytes() const {
    return call_.elems * collectives::SizeOf(call_.dtype);
  }

  // Once it is done. Errors: Error if a bit of it, or around it, is wrong.
  void Check() const;

 private:
  const collectives::Bytes& Sent(int rank) const {
    return sent_[static_cast<size_t>(rank)];
  }
  int64_t InputElems(int rank) const;
  void MakeInPlace();
  void MakeApart();
  collectives::Bytes Expected() const;
  collectives::Bytes Gathered() const;
  collectives::Bytes Scattered() const;

  const SoakPosition position_;
  const int rank_;
  collectives::Call call_;
  std::vector<collectives::Bytes> sent_;                // by each rank
  std::unique_ptr<collectives::PoisonedBuffer> input_;  // null: in place
  std::unique_ptr<collectives::PoisonedBuffer> output_;
};

}  // namespace trainsys
