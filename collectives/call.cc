#include "collectives/call.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "collectives/errors.h"

namespace collectives {
namespace {

bool HasCounts(Operation operation) {
  return operation == Operation::kReduceScatter ||
         operation == Operation::kAllGather;
}

[[noreturn]] void Refuse(const Call& call, const std::string& why) {
  throw InvalidArgument(std::string(Name(call.operation)) + " '" + call.label +
                        "': " + why);
}

void ValidateCounts(const Call& call, int ranks) {
  if (static_cast<int>(call.counts.size()) != ranks) {
    Refuse(call, "got " + std::to_string(call.counts.size()) +
                     " counts, expected one for each of " +
                     std::to_string(ranks) + " ranks");
  }
  for (int64_t count : call.counts) {
    if (count < 0) Refuse(call, "a count is negative; expected 0 or more");
  }
  if (SumOf(call.counts) != call.elems) {
    Refuse(call, std::to_string(call.elems) +
                     " elements, expected the sum of the counts");
  }
}

void ValidateSize(const Call& call) {
  if (call.elems < 0) Refuse(call, "negative length; expected 0 or more");
  const int64_t most =
      std::numeric_limits<int64_t>::max() / SizeOf(call.dtype) / 4;
  if (call.elems > most) Refuse(call, "length overflows; expected fewer");
}

struct Range {
  const std::byte* begin;
  const std::byte* end;
};

Range BytesAt(const void* data, int64_t elems, DType dtype) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + elems * SizeOf(dtype)};
}

bool Overlap(const Range& a, const Range& b) {
  const bool is_empty = a.begin == a.end || b.begin == b.end;
  return !is_empty && a.begin < b.end && b.begin < a.end;
}

// The smaller of input and output must lie exactly in its own place inside
// the larger one, or apart from it.
void ValidateOverlap(const Call& call, int rank) {
  const bool gathers = call.operation == Operation::kAllGather;
  const int64_t part = call.counts[rank];
  const Range input =
      BytesAt(call.input, gathers ? part : call.elems, call.dtype);
  const Range output =
      BytesAt(call.output, gathers ? call.elems : part, call.dtype);
  if (!Overlap(input, output)) return;
  const Range& small = gathers ? input : output;
  const Range& large = gathers ? output : input;
  const int64_t offset = OffsetOf(call, rank) * SizeOf(call.dtype);
  if (small.begin != large.begin + offset) {
    Refuse(call,
           "input and output overlap; expected them apart, or in place with "
           "this rank's part at its own offset");
  }
}

}  // namespace

void Validate(const Call& call, int rank, int ranks) {
  ValidateSize(call);
  if (Reduces(call.operation) && call.reduce_op == ReduceOp::kAverage &&
      IsInteger(call.dtype)) {
    Refuse(call, "an average of " + std::string(Name(call.dtype)) +
                     " is not exact; sum and divide instead");
  }
  if (call.operation == Operation::kBroadcast &&
      (call.root < 0 || call.root >= ranks)) {
    Refuse(call, "root " + std::to_string(call.root) + ", expected 0 to " +
                     std::to_string(ranks - 1));
  }
  const bool has_counts = HasCounts(call.operation);
  if (has_counts) ValidateCounts(call, ranks);
  const int64_t part = has_counts ? call.counts[rank] : call.elems;
  const bool gathers = call.operation == Operation::kAllGather;
  const int64_t input_elems = gathers ? part : call.elems;
  const int64_t output_elems = gathers ? call.elems : part;
  if ((input_elems > 0 && call.input == nullptr) ||
      (output_elems > 0 && call.output == nullptr)) {
    Refuse(call, "null data with a length above 0");
  }
  if (has_counts) {
    ValidateOverlap(call, rank);
  } else if (call.input != call.output) {
    Refuse(call, "input and output differ; expected one buffer, in place");
  }
}

void RequireHostMemory(const Call& call, const std::string& backend) {
  if (call.device == kHostMemory) return;
  Refuse(call, "the data is on device " + std::to_string(call.device) + "; " +
                   backend + " moves host memory only: use NCCL, or copy it");
}

int64_t SumOf(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (int64_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return sum;
}

int64_t OffsetOf(const Call& call, int rank) {
  return std::accumulate(call.counts.begin(), call.counts.begin() + rank,
                         int64_t{0});
}

std::string Describe(const Call& call) {
  std::string text(Name(call.operation));
  if (Reduces(call.operation)) text += " " + std::string(Name(call.reduce_op));
  if (call.operation != Operation::kBarrier &&
      call.operation != Operation::kDuplicate) {
    text += " " + std::string(Name(call.dtype)) + " x " +
            std::to_string(call.elems);
  }
  if (HasCounts(call.operation)) {
    text += " (";
    for (size_t i = 0; i < call.counts.size(); ++i) {
      text += (i ? "+" : "") + std::to_string(call.counts[i]);
    }
    text += ")";
  }
  if (call.operation == Operation::kBroadcast) {
    text += " from rank " + std::to_string(call.root);
  }
  text += " '" + call.label + "'";
  return call.is_recomputed ? text + " (recomputed)" : text;
}

bool Matches(const Call& a, const Call& b) {
  return a.operation == b.operation && a.reduce_op == b.reduce_op &&
         a.dtype == b.dtype && a.elems == b.elems && a.root == b.root &&
         a.is_recomputed == b.is_recomputed && a.label == b.label &&
         a.counts == b.counts;
}

std::string Differences(const Call& a, const Call& b) {
  std::string text;
  auto differ = [&text](bool is_different, const char* fact) {
    if (is_different) text += (text.empty() ? "" : ", ") + std::string(fact);
  };
  differ(a.operation != b.operation, "operation");
  differ(a.reduce_op != b.reduce_op, "reduce op");
  differ(a.dtype != b.dtype, "dtype");
  differ(a.elems != b.elems, "elements");
  differ(a.counts != b.counts, "counts");
  differ(a.root != b.root, "root");
  differ(a.label != b.label, "label");
  differ(a.is_recomputed != b.is_recomputed, "recomputation");
  return text;
}

// Equal calls are listed once.
std::string Mismatch(std::span<const Call* const> calls) {
  std::string differences;
  for (const Call* call : calls) {
    if (differences.empty()) differences = Differences(*calls[0], *call);
  }
  if (differences.empty()) return "";
  std::vector<std::pair<std::string, std::string>> groups;  // ranks, call
  for (size_t r = 0; r < calls.size(); ++r) {
    const std::string text = Describe(*calls[r]);
    auto same = std::find_if(groups.begin(), groups.end(),
                             [&](const auto& g) { return g.second == text; });
    if (same == groups.end()) same = groups.insert(same, {"", text});
    same->first += " " + std::to_string(r);
  }
  std::string all = "the ranks' calls differ in " + differences + ":";
  for (const auto& [members, text] : groups) {
    all += " [rank" + members + ": " + text + "]";
  }
  return all;
}

int64_t SentBytes(const Call& call, int ranks) {
  const int64_t bytes = call.elems * SizeOf(call.dtype);
  const int64_t ring = bytes / ranks * (ranks - 1) +
                       bytes % ranks * (ranks - 1) / ranks;  // S(N-1)/N
  switch (call.operation) {
    case Operation::kAllReduce:
      return bytes / ranks * 2 * (ranks - 1) +
             bytes % ranks * 2 * (ranks - 1) / ranks;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kBroadcast:
      return ring;
    case Operation::kBarrier:
    case Operation::kDuplicate:
      return 0;
  }
  return 0;
}

}  // namespace collectives
