#include "trainsys/measure/link_sweep.h"

#include <algorithm>
#include <span>

#include "collectives/buffer.h"
#include "collectives/record/clock.h"
#include "trainsys/measure/interleaved.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

constexpr int64_t kElemBytes = sizeof(float);

// So many that what a barrier leaves uneven does not show.
int64_t CallsOf(int64_t bytes) {
  constexpr int64_t kMost = 16, kBytes = 1 << 20;
  return std::clamp<int64_t>(kBytes / bytes, 1, kMost);
}

// Data of every rank, of which each call takes the next piece: as buckets do,
// it finds little of it in a cache.
class Pieces {
 public:
  // Averages of ones stay what they are.
  explicit Pieces(int64_t bytes)
      : data_(static_cast<size_t>(bytes / kElemBytes), 1) {}

  std::span<float> Next(int64_t bytes) {
    const auto elems = static_cast<size_t>(bytes / kElemBytes);
    if (begin_ + elems > data_.size()) begin_ = 0;
    const auto piece = std::span(data_).subspan(begin_, elems);
    begin_ += elems;
    return piece;
  }

 private:
  std::vector<float> data_;
  size_t begin_ = 0;
};

int64_t TurnNs(Communicator& comm, Pieces& pieces, int64_t bytes) {
  comm.Barrier("turn");
  const int64_t began_ns = NowNs();
  for (int64_t call = CallsOf(bytes); call > 0; --call) {
    comm.AllReduce(collectives::AsBuffer(pieces.Next(bytes)),
                   collectives::ReduceOp::kAverage, "alone");
  }
  return NowNs() - began_ns;
}

}  // namespace

std::vector<LinkSample> TimeAllReduces(Communicator& comm,
                                       const std::vector<int64_t>& sizes_bytes,
                                       int turns,
                                       const std::function<bool()>& goes_on) {
  const int64_t most =
      *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
  Pieces pieces(most);
  const size_t n = sizes_bytes.size();
  std::vector<int64_t> took_ns;  // of each turn the sizes, in order
  for (int turn = -1; turn < turns; ++turn) {  // the first warms up
    if (!goes_on()) return {};
    std::vector<int64_t> of_sizes(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t s = VariantAt(turn + 1, i, n);
      of_sizes[s] = TurnNs(comm, pieces, sizes_bytes[s]);
    }
    if (turn < 0) continue;
    took_ns.insert(took_ns.end(), of_sizes.begin(), of_sizes.end());
  }
  comm.AllReduce(collectives::AsBuffer(std::span(took_ns)),
                 collectives::ReduceOp::kMax, "times of turns");
  std::vector<LinkSample> samples;
  for (size_t s = 0; s < n; ++s) {
    std::vector<double> us;
    for (size_t at = s; at < took_ns.size(); at += n) {
      us.push_back(static_cast<double>(took_ns[at]) / 1e3 /
                   static_cast<double>(CallsOf(sizes_bytes[s])));
    }
    samples.push_back({sizes_bytes[s], Median(std::move(us))});
  }
  return samples;
}

std::vector<int64_t> LinkSizes(int64_t largest_bytes) {
  const int64_t largest =
      (largest_bytes + kElemBytes - 1) / kElemBytes * kElemBytes;
  std::vector<int64_t> sizes;
  for (int64_t bytes = 4 << 10; bytes < largest; bytes *= 2) {
    sizes.push_back(bytes);
  }
  sizes.push_back(largest);
  return sizes;
}

}  // namespace trainsys
