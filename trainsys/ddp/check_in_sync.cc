#include "trainsys/ddp/check_in_sync.h"

#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::AsBuffer;

std::vector<OutOfSync> CheckInSync(const std::vector<at::Tensor>& tensors,
                                   collectives::Communicator& comm) {
  const size_t n = tensors.size();
  std::vector<int64_t> mine;
  for (const at::Tensor& tensor : tensors) {
    mine.push_back(static_cast<int64_t>(HashOf({tensor})));
  }
  const auto ranks = static_cast<size_t>(comm.ranks());
  std::vector<int64_t> all(n * ranks);
  comm.AllGather(AsBuffer(std::span(mine)), AsBuffer(std::span(all)),
                 std::vector<int64_t>(ranks, static_cast<int64_t>(n)),
                 "in sync?");
  std::vector<OutOfSync> differences;
  for (size_t i = 0; i < n; ++i) {
    OutOfSync difference{i, {}};
    for (size_t r = 1; r < ranks; ++r) {
      if (all[r * n + i] != all[i]) {
        difference.ranks.push_back(static_cast<int>(r));
      }
    }
    if (!difference.ranks.empty()) differences.push_back(difference);
  }
  return differences;
}

std::string Describe(const std::vector<OutOfSync>& differences,
                     const std::vector<std::string>& names) {
  if (differences.empty()) return "";
  std::string text = std::to_string(differences.size()) + " of " +
                     std::to_string(names.size()) +
                     " tensors differ from rank 0:";
  for (const OutOfSync& difference : differences) {
    text += " [" + names[difference.index] + " on rank";
    for (int r : difference.ranks) text += " " + std::to_string(r);
    text += "]";
  }
  return text;
}

}  // namespace trainsys
