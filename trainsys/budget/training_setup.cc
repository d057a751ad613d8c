#include "trainsys/budget/training_setup.h"

#include <array>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

template <typename T>
using Named = std::pair<const char*, T>;

constexpr std::array kPrecisions = {
    Named<Precision>{"f32", Precision::kF32},
    Named<Precision>{"f64", Precision::kF64},
    Named<Precision>{"bf16", Precision::kBf16Masters},
    Named<Precision>{"bf16-f32grads", Precision::kBf16MastersF32Grads},
    Named<Precision>{"bf16-pure", Precision::kPureBf16}};

constexpr std::array kOptimizers = {
    Named<OptimizerKind>{"sgd", OptimizerKind::kSgd},
    Named<OptimizerKind>{"momentum", OptimizerKind::kSgdMomentum},
    Named<OptimizerKind>{"adam", OptimizerKind::kAdam}};

constexpr std::array kPartitions = {
    Named<Partition>{"flat", Partition::kFlat},
    Named<Partition>{"tensor", Partition::kByTensor},
    Named<Partition>{"balanced", Partition::kBalanced}};

template <typename Table>
auto Find(const Table& table, const char* what, const std::string& name) {
  std::string known;
  for (const auto& [candidate, value] : table) {
    if (name == candidate) return value;
    known += std::string(known.empty() ? "" : ", ") + candidate;
  }
  throw collectives::InvalidArgument(std::string(what) + " is '" + name +
                                     "', expected one of " + known);
}

template <typename Table, typename T>
std::string NameIn(const Table& table, T value) {
  for (const auto& [name, candidate] : table) {
    if (candidate == value) return name;
  }
  return "";
}

int64_t NumMoments(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kSgdMomentum:
      return 1;
    case OptimizerKind::kAdam:
      return 2;
  }
  return 0;
}

}  // namespace

ElementBytes BytesOf(Precision precision, OptimizerKind optimizer) {
  const int64_t moments = NumMoments(optimizer);
  switch (precision) {
    case Precision::kF32:
      return {4, 4, 4 * moments};
    case Precision::kF64:
      return {8, 8, 8 * moments};
    case Precision::kBf16Masters:
      return {2, 2, 4 + 4 * moments};
    case Precision::kBf16MastersF32Grads:
      return {2, 4, 4 + 4 * moments};
    case Precision::kPureBf16:
      return {2, 2, 2 * moments};
  }
  return {};
}

Precision PrecisionNamed(const std::string& name) {
  return Find(kPrecisions, "precision", name);
}
OptimizerKind OptimizerNamed(const std::string& name) {
  return Find(kOptimizers, "optimizer", name);
}
Partition PartitionNamed(const std::string& name) {
  return Find(kPartitions, "partition", name);
}
std::string NameOf(Precision precision) {
  return NameIn(kPrecisions, precision);
}
std::string NameOf(OptimizerKind optimizer) {
  return NameIn(kOptimizers, optimizer);
}
std::string NameOf(Partition partition) {
  return NameIn(kPartitions, partition);
}

}  // namespace trainsys
