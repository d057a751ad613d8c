#include "trainsys/ddp/same_module.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/ddp/check_in_sync.h"
#include "trainsys/ddp/module_parameters.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::AsBuffer;
using collectives::Communicator;

std::string Line(const char* kind, const std::string& name,
                 const at::Tensor& tensor) {
  std::ostringstream line;
  line << kind << " '" << name << "' " << tensor.sizes() << " "
       << c10::toString(tensor.scalar_type());
  return line.str();
}

std::vector<std::string> Structure(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  std::map<const at::TensorImpl*, std::string> first_names;
  for (const auto& item : module.named_parameters()) {
    const auto [first, is_first] =
        first_names.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
    lines.push_back(Line("parameter", item.key(), item.value()) +
                    (item.value().requires_grad() ? "" : " frozen") +
                    (is_first ? "" : " tied to '" + first->second + "'"));
  }
  for (const auto& item : module.named_buffers()) {
    lines.push_back(Line("buffer", item.key(), item.value()));
  }
  for (const std::string& name : SparseParametersOf(module)) {
    lines.push_back("sparse gradients of '" + name + "'");
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Rank `root`'s text, on every rank.
std::string OfRank(int root, std::string text, Communicator& comm) {
  std::vector<int64_t> size{static_cast<int64_t>(text.size())};
  comm.Broadcast(AsBuffer(std::span(size)), root, "module size");
  text.resize(static_cast<size_t>(size[0]));
  comm.Broadcast({text.data(), collectives::DType::kU8, size[0]}, root,
                 "module structure");
  return text;
}

// The first line that differs, both sides; empty if none.
std::string FirstDifference(const std::vector<std::string>& theirs,
                            const std::vector<std::string>& mine, int rank) {
  for (size_t i = 0; i < std::max(theirs.size(), mine.size()); ++i) {
    const std::string a = i < theirs.size() ? theirs[i] : "nothing";
    const std::string b = i < mine.size() ? mine[i] : "nothing";
    if (a == b) continue;
    return "rank 0 has " + a + ", rank " + std::to_string(rank) + " has " + b;
  }
  return "";
}

std::optional<int> FirstRankThatDiffers(bool differs, Communicator& comm) {
  std::vector<uint8_t> mine{static_cast<uint8_t>(differs)};
  std::vector<uint8_t> all(static_cast<size_t>(comm.ranks()));
  comm.AllGather(AsBuffer(std::span(mine)), AsBuffer(std::span(all)),
                 std::vector<int64_t>(all.size(), 1), "module differs");
  const auto first = std::find(all.begin(), all.end(), 1);
  if (first == all.end()) return std::nullopt;
  return static_cast<int>(first - all.begin());
}

}  // namespace

void CheckSameStructure(const torch::nn::Module& module, Communicator& comm,
                        const std::vector<std::string>& more) {
  std::vector<std::string> mine = Structure(module);
  mine.insert(mine.begin(), more.begin(), more.end());
  const std::string difference =
      FirstDifference(Split(OfRank(0, Join(mine), comm)), mine, comm.rank());
  const std::optional<int> rank =
      FirstRankThatDiffers(!difference.empty(), comm);
  if (!rank) return;
  throw collectives::InvalidArgument(
      "the ranks' modules differ, expected the same on all: " +
      OfRank(*rank, difference, comm));
}

void CheckSameValues(const torch::nn::Module& module, Communicator& comm) {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto& items :
       {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : items) {
      names.push_back("'" + item.key() + "'");
      tensors.push_back(item.value());
    }
  }
  const std::vector<OutOfSync> differences = CheckInSync(tensors, comm);
  if (differences.empty()) return;
  throw collectives::InvalidArgument(
      Describe(differences, names) +
      "; expected the same values on all ranks: call BroadcastFromRank0, or "
      "make them from one seed");
}

void BroadcastBuffers(torch::nn::Module& module, int root, Communicator& comm) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> buffers;
  size_t bytes = 0;
  for (const auto& item : module.named_buffers()) {
    buffers.push_back(item.value().detach().contiguous().cpu());
    bytes += buffers.back().nbytes();
  }
  if (bytes == 0) return;
  std::vector<uint8_t> packed;
  packed.reserve(bytes);
  for (const at::Tensor& b : buffers) {
    const auto* const begin = static_cast<const uint8_t*>(b.data_ptr());
    packed.insert(packed.end(), begin, begin + b.nbytes());
  }
  comm.Broadcast(AsBuffer(std::span(packed)), root, "buffers");
  const uint8_t* from = packed.data();
  size_t b = 0;
  for (auto& item : module.named_buffers()) {
    const at::Tensor& mine = buffers[b++];
    if (mine.numel() == 0) continue;
    if (std::memcmp(mine.data_ptr(), from, mine.nbytes()) != 0) {
      const at::Tensor values = at::empty_like(mine);
      std::memcpy(values.data_ptr(), from, mine.nbytes());
      item.value().copy_(values);
    }
    from += mine.nbytes();
  }
}

void BroadcastFromRank0(torch::nn::Module& module, Communicator& comm) {
  const c10::AutoGradMode no_grad(false);
  const auto broadcast = [&comm](const std::string& name, at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().contiguous();
    comm.Broadcast(BufferOf(values), 0, name);
    if (values.data_ptr() != tensor.data_ptr()) {
      tensor.copy_(values);
    } else {
      MarkWritten(tensor);
    }
  };
  for (auto& item : module.named_parameters()) {
    broadcast(item.key(), item.value());
  }
  for (auto& item : module.named_buffers()) {
    broadcast(item.key(), item.value());
  }
}

}  // namespace trainsys
