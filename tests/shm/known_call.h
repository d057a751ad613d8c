// A collective with memory of its own, whose result is known in advance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/communicator.h"

namespace collectives {

// What the ranks agree on. `number` tells the data and labels of several apart.
struct KnownCallKind {
  Operation operation = Operation::kAllReduce;  // kDuplicate too
  int ranks = 1;
  int number = 0;
  int root = 0;            // broadcast only
  int64_t elems = 20'000;  // about; several chunks
};

// One rank's part. Sums of small integers: every bit is known. Parts are uneven
// and rank 1 of three or more has none; reduce-scatter and all-gather work out
// of place.
// Threads: one at a time. Lifetime: that of the Work that Start returns.
class KnownCall {
 public:
  KnownCall(const KnownCallKind& kind, int rank);
  KnownCall(const KnownCall&) = delete;
  KnownCall& operator=(const KnownCall&) = delete;

  void Run(Communicator& comm);    // blocks
  Work Start(Communicator& comm);  // any operation but duplicate

  // "all-reduce sum f32 x 20001 'call 0'"
  std::string Text() const { return Describe(call_); }

  bool IsUntouched() const;
  bool IsRight() const;

 private:
  float Value(int rank, int64_t elem) const;
  float Sum(int64_t elem) const;
  int Owner(int64_t elem) const;
  std::vector<float> PartOf(float (KnownCall::*value)(int64_t) const) const;
  float Mine(int64_t elem) const { return Value(rank_, elem); }
  void Fill();

  const KnownCallKind kind_;
  const int rank_;
  Call call_;
  std::vector<float> data_;  // [elems]
  std::vector<float> part_;  // [counts[rank]]
};

}  // namespace collectives
