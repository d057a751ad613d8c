#include "tests/shm/known_call.h"

#include <algorithm>

namespace collectives {
namespace {

bool HasParts(Operation operation) {
  return operation == Operation::kReduceScatter ||
         operation == Operation::kAllGather;
}

bool MovesData(Operation operation) {
  return operation != Operation::kBarrier && operation != Operation::kDuplicate;
}

std::vector<int64_t> UnevenCounts(int ranks, int64_t elems) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(2 * elems * (r + 1) / (ranks * (ranks + 1)));
  }
  if (ranks > 2) counts[1] = 0;
  return counts;
}

}  // namespace

KnownCall::KnownCall(const KnownCallKind& kind, int rank)
    : kind_(kind), rank_(rank) {
  call_.operation = kind.operation;
  call_.label = "call " + std::to_string(kind.number);
  if (!MovesData(kind.operation)) return;
  call_.dtype = DType::kF32;
  call_.root = kind.operation == Operation::kBroadcast ? kind.root : 0;
  call_.elems = kind.elems;
  if (HasParts(kind.operation)) {
    call_.counts = UnevenCounts(kind.ranks, kind.elems);
    call_.elems = SumOf(call_.counts);
    part_.resize(static_cast<size_t>(call_.counts[static_cast<size_t>(rank)]));
  }
  data_.resize(static_cast<size_t>(call_.elems));
  Fill();
  call_.input = call_.output = data_.data();
  if (kind.operation == Operation::kReduceScatter) call_.output = part_.data();
  if (kind.operation == Operation::kAllGather) call_.input = part_.data();
}

// What is written only has other values before than after.
void KnownCall::Fill() {
  const bool gathers = kind_.operation == Operation::kAllGather;
  for (int64_t i = 0; i < call_.elems; ++i) {
    data_[static_cast<size_t>(i)] = gathers ? -1 : Mine(i);
  }
  if (gathers) {
    part_ = PartOf(&KnownCall::Mine);
  } else {
    std::fill(part_.begin(), part_.end(), -1.0F);
  }
}

void KnownCall::Run(Communicator& comm) {
  if (kind_.operation == Operation::kDuplicate) {
    comm.Duplicate(call_.label);
  } else {
    comm.Post(call_).Wait();
  }
}

Work KnownCall::Start(Communicator& comm) {
  Call call = call_;
  call.is_async = true;
  return comm.Post(std::move(call));
}

bool KnownCall::IsUntouched() const {
  const bool gathers = kind_.operation == Operation::kAllGather;
  for (int64_t i = 0; i < call_.elems; ++i) {
    if (data_[static_cast<size_t>(i)] != (gathers ? -1 : Mine(i))) return false;
  }
  if (gathers) return part_ == PartOf(&KnownCall::Mine);
  return std::all_of(part_.begin(), part_.end(),
                     [](float x) { return x == -1; });
}

bool KnownCall::IsRight() const {
  const Operation operation = kind_.operation;
  const auto expected = [&](int64_t i) {
    if (operation == Operation::kAllReduce) return Sum(i);
    if (operation == Operation::kAllGather) return Value(Owner(i), i);
    if (operation == Operation::kBroadcast) return Value(kind_.root, i);
    return Mine(i);
  };
  for (int64_t i = 0; i < call_.elems; ++i) {
    if (data_[static_cast<size_t>(i)] != expected(i)) return false;
  }
  if (!HasParts(operation)) return true;
  return part_ == PartOf(operation == Operation::kReduceScatter
                             ? &KnownCall::Sum
                             : &KnownCall::Mine);
}

float KnownCall::Value(int rank, int64_t elem) const {
  return static_cast<float>((7 * elem + 1009 * rank + 31 * kind_.number) %
                            4093);
}

float KnownCall::Sum(int64_t elem) const {
  float sum = 0;
  for (int r = 0; r < kind_.ranks; ++r) sum += Value(r, elem);
  return sum;
}

int KnownCall::Owner(int64_t elem) const {
  int rank = 0;
  while (rank + 1 < kind_.ranks && elem >= OffsetOf(call_, rank + 1)) ++rank;
  return rank;
}

std::vector<float> KnownCall::PartOf(float (KnownCall::*value)(int64_t)
                                         const) const {
  std::vector<float> part;
  const int64_t begin = OffsetOf(call_, rank_);
  for (size_t i = 0; i < part_.size(); ++i) {
    part.push_back((this->*value)(begin + static_cast<int64_t>(i)));
  }
  return part;
}

}  // namespace collectives
