#include "trainsys/zero/shard_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "trainsys/tensor/flat_layout.h"

namespace trainsys {
namespace {

int64_t Aligned(int64_t bytes) { return AlignedElems(bytes, 1); }

void LayOutInOrder(ShardPlan& plan) {
  FlatLayout layout = LayOut(plan.tensor_bytes, 1);
  plan.offsets = std::move(layout.offsets);
}

void CutAnywhere(ShardPlan& plan, int ranks) {
  LayOutInOrder(plan);
  const int64_t each = Aligned((plan.bytes + ranks - 1) / ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = std::min(plan.bytes, r * each);
    plan.shards.push_back({begin, std::min(plan.bytes, begin + each) - begin});
  }
}

void CutBetweenTensors(ShardPlan& plan, int ranks) {
  LayOutInOrder(plan);
  const auto tensors = static_cast<int64_t>(plan.offsets.size());
  const auto offset = [&plan, tensors](int64_t tensor) {
    return tensor == tensors ? plan.bytes
                             : plan.offsets[static_cast<size_t>(tensor)];
  };
  int64_t first = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t last =
        first + tensors / ranks + (r < tensors % ranks ? 1 : 0);
    plan.shards.push_back({offset(first), offset(last) - offset(first)});
    first = last;
  }
}

// Each tensor's owner.
std::vector<size_t> DealLargestFirst(const ShardPlan& plan, int ranks) {
  std::vector<size_t> order(plan.tensor_bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&plan](size_t a, size_t b) {
    return Aligned(plan.tensor_bytes[a]) > Aligned(plan.tensor_bytes[b]);
  });
  using Load = std::pair<int64_t, size_t>;  // bytes so far, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  // More ranks than tensors never get one.
  const size_t takers = std::min(order.size(), static_cast<size_t>(ranks));
  for (size_t r = 0; r < takers; ++r) least.emplace(0, r);
  std::vector<size_t> owners(order.size());
  for (size_t tensor : order) {
    const auto [bytes, rank] = least.top();
    least.pop();
    owners[tensor] = rank;
    least.emplace(bytes + Aligned(plan.tensor_bytes[tensor]), rank);
  }
  return owners;
}

void Balance(ShardPlan& plan, int ranks) {
  const std::vector<size_t> owners = DealLargestFirst(plan, ranks);
  plan.shards.resize(static_cast<size_t>(ranks));
  for (size_t i = 0; i < owners.size(); ++i) {
    plan.shards[owners[i]].bytes += Aligned(plan.tensor_bytes[i]);
  }
  int64_t begin = 0;
  for (Shard& shard : plan.shards) {
    shard.begin = begin;
    begin = shard.end();
  }
  std::vector<int64_t> next;
  for (const Shard& shard : plan.shards) next.push_back(shard.begin);
  for (size_t i = 0; i < owners.size(); ++i) {
    plan.offsets.push_back(next[owners[i]]);
    next[owners[i]] += Aligned(plan.tensor_bytes[i]);
  }
}

// Of one rank or of several together. Units: bytes, without padding.
struct Part {
  int64_t bytes = 0;
  size_t pieces = 0;
};

std::vector<Part> PartsOf(const ShardPlan& plan) {
  std::vector<Part> parts;
  for (size_t r = 0; r < plan.shards.size(); ++r) {
    const auto pieces = plan.PiecesOf(static_cast<int>(r));
    Part& part = parts.emplace_back(Part{0, pieces.size()});
    for (const ShardPiece& piece : pieces) part.bytes += piece.bytes;
  }
  return parts;
}

double Percent(int64_t bytes, int64_t of) {
  return of == 0 ? 0
                 : 100.0 * static_cast<double>(bytes) / static_cast<double>(of);
}

const char* NameOfCut(Partition partition) {
  switch (partition) {
    case Partition::kFlat:
      return "flat";
    case Partition::kByTensor:
      return "by tensor";
    case Partition::kBalanced:
      return "balanced";
  }
  return "";
}

std::string Row(const std::string& rank, const Part& part, int64_t all) {
  return fmt::format("{:>8}{:>18}{:>8.1f} %{:>9}", rank, part.bytes,
                     Percent(part.bytes, all), part.pieces);
}

std::string Rows(const std::vector<Part>& parts, int64_t all) {
  constexpr size_t kMostRows = 13;  // and three lines around them
  const bool has_rest = parts.size() > kMostRows;
  const size_t listed = has_rest ? kMostRows - 1 : parts.size();
  std::string text;
  for (size_t r = 0; r < listed; ++r) {
    text += Row(std::to_string(r), parts[r], all) + "\n";
  }
  if (!has_rest) return text;
  Part rest;
  for (size_t r = listed; r < parts.size(); ++r) {
    rest.bytes += parts[r].bytes;
    rest.pieces += parts[r].pieces;
  }
  return text + Row(fmt::format("{}-{}", listed, parts.size() - 1), rest, all) +
         "  together\n";
}

std::string Imbalance(const std::vector<Part>& parts, int64_t all) {
  if (all == 0) return "nothing to share out\n";
  const auto largest = std::max_element(
      parts.begin(), parts.end(),
      [](const Part& a, const Part& b) { return a.bytes < b.bytes; });
  const double share = Percent(largest->bytes, all);
  const double even = 100.0 / static_cast<double>(parts.size());
  return fmt::format(
      "imbalance {:.2f}x: rank {} has {:.1f} % where {:.1f} % is even\n",
      share / even, largest - parts.begin(), share, even);
}

}  // namespace

std::vector<ShardPiece> ShardPlan::PiecesOf(int rank) const {
  const Shard& shard = shards[static_cast<size_t>(rank)];
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t begin = std::max(shard.begin, offsets[i]);
    const int64_t end = std::min(shard.end(), offsets[i] + tensor_bytes[i]);
    if (begin >= end) continue;
    pieces.push_back({i, begin - offsets[i], begin - shard.begin, end - begin});
  }
  return pieces;
}

ShardPlan PlanShards(std::span<const int64_t> tensor_bytes, int ranks,
                     Partition partition) {
  ShardPlan plan;
  plan.partition = partition;
  plan.tensor_bytes.assign(tensor_bytes.begin(), tensor_bytes.end());
  for (int64_t bytes : tensor_bytes) plan.bytes += Aligned(bytes);
  switch (partition) {
    case Partition::kFlat:
      CutAnywhere(plan, ranks);
      break;
    case Partition::kByTensor:
      CutBetweenTensors(plan, ranks);
      break;
    case Partition::kBalanced:
      Balance(plan, ranks);
      break;
  }
  return plan;
}

std::vector<int64_t> Counts(const ShardPlan& plan, int64_t elem_bytes) {
  std::vector<int64_t> counts;
  for (const Shard& shard : plan.shards) {
    counts.push_back(shard.bytes / elem_bytes);
  }
  return counts;
}

std::string Describe(const ShardPlan& plan) {
  const std::vector<Part> parts = PartsOf(plan);
  int64_t all = 0;
  for (const Part& part : parts) all += part.bytes;
  const std::string title =
      fmt::format("{}: {} shards of {} tensors, {} bytes and {} of padding\n",
                  NameOfCut(plan.partition), parts.size(),
                  plan.tensor_bytes.size(), all, plan.bytes - all);
  const std::string heads =
      fmt::format("{:>8}{:>18}{:>10}{:>9}\n", "rank", "bytes", "share",
                  plan.partition == Partition::kFlat ? "pieces" : "tensors");
  return title + heads + Rows(parts, all) + Imbalance(parts, all);
}

}  // namespace trainsys
