#include "tools/collective_bench/cases.h"

#include <fmt/core.h>

#include <charconv>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::DType;
using collectives::InvalidArgument;
using collectives::Operation;

constexpr int64_t kKi = 1 << 10;
constexpr int64_t kMi = 1 << 20;
constexpr int64_t kMaxBytes = 1024 * kMi;

constexpr Operation kOperations[] = {
    Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
    Operation::kBroadcast, Operation::kBarrier};

void CheckWhole(int64_t bytes, DType dtype) {
  if (bytes % SizeOf(dtype) == 0) return;
  throw InvalidArgument(
      fmt::format("bytes is {}, expected whole elements of {}: a multiple of "
                  "{}",
                  bytes, Name(dtype), SizeOf(dtype)));
}

}  // namespace

Selection WholeTable() {
  return {{std::begin(kOperations), std::end(kOperations)},
          {1, 2, 4, 8, 16, 64},
          {4, kKi, 16 * kKi, 64 * kKi, kMi, 16 * kMi, 64 * kMi},
          {DType::kF32, DType::kBF16},
          {false, true}};
}

Selection QuickTable() {
  return {{Operation::kAllReduce, Operation::kBarrier},
          {2, 4, 8, 64},
          {4, 16 * kKi, 64 * kKi, kMi, 16 * kMi},
          {DType::kF32, DType::kBF16},
          {false, true},
          128 * kMi};
}

std::vector<Case> CasesOf(const Selection& selection, int ranks) {
  std::vector<Case> cases;
  for (const Operation operation : selection.operations) {
    if (operation == Operation::kBarrier) {
      cases.push_back({operation, ranks, 0, DType::kF32});
      continue;
    }
    for (const DType dtype : selection.dtypes) {
      for (const int64_t bytes : selection.bytes) {
        CheckWhole(bytes, dtype);
        if (bytes > selection.most_bytes / ranks) continue;
        cases.push_back({operation, ranks, bytes, dtype});
      }
    }
  }
  return cases;
}

std::vector<int64_t> EvenOffsets(int64_t elems, int ranks) {
  std::vector<int64_t> offsets;
  for (int rank = 0; rank <= ranks; ++rank) {
    offsets.push_back(elems * rank / ranks);
  }
  return offsets;
}

std::vector<int64_t> EvenCounts(int64_t elems, int ranks) {
  const std::vector<int64_t> offsets = EvenOffsets(elems, ranks);
  std::vector<int64_t> counts;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    counts.push_back(offsets[i + 1] - offsets[i]);
  }
  return counts;
}

double BusFactor(const Case& what) {
  const double others = static_cast<double>(what.ranks - 1) / what.ranks;
  switch (what.operation) {
    case Operation::kAllReduce:
      return 2 * others;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
      return others;
    case Operation::kBroadcast:
      return 1;
    case Operation::kBarrier:
    case Operation::kDuplicate:
      return 0;
  }
  return 0;
}

Operation ParseOperation(std::string_view text) {
  std::string names;
  for (const Operation operation : kOperations) {
    if (text == Name(operation)) return operation;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Name(operation));
  }
  throw InvalidArgument(
      fmt::format("operation '{}', expected one of {}", text, names));
}

DType ParseDType(std::string_view text) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (text == Name(dtype)) return dtype;
  }
  throw InvalidArgument(
      fmt::format("element type '{}', expected f32 or bf16", text));
}

int64_t ParseBytes(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int64_t factor = unit.empty() || unit == "B"     ? 1
                         : unit == "Ki" || unit == "KiB" ? kKi
                         : unit == "Mi" || unit == "MiB" ? kMi
                                                         : 0;
  if (error != std::errc() || factor == 0 || number < 1 ||
      number > kMaxBytes / factor) {
    throw InvalidArgument("bytes is '" + text +
                          "', expected 1 to 1024MiB, as 4, 16KiB or 64Mi");
  }
  return number * factor;
}

std::string BytesText(int64_t bytes) {
  if (bytes >= kMi && bytes % kMi == 0)
    return fmt::format("{} MiB", bytes / kMi);
  if (bytes >= kKi && bytes % kKi == 0)
    return fmt::format("{} KiB", bytes / kKi);
  return fmt::format("{} B", bytes);
}

}  // namespace trainsys
