#include "trainsys/checks/kept_bytes.h"

#include <algorithm>

namespace trainsys {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors GradientsOf(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& p : parameters) {
    if (p.grad().defined()) gradients.push_back(p.grad());
  }
  return gradients;
}

// Of those in host memory that lie elsewhere than `others`.
int64_t BytesOfNew(const Tensors& tensors, const Tensors& others) {
  int64_t bytes = 0;
  for (const at::Tensor& t : tensors) {
    const bool is_new = std::ranges::none_of(
        others, [&](const at::Tensor& o) { return o.is_alias_of(t); });
    if (is_new && t.is_cpu()) bytes += static_cast<int64_t>(t.nbytes());
  }
  return bytes;
}

}  // namespace

void KeptBytes::Count(const std::function<void()>& call) {
  // Held over the call: dropped by it or not, they count as nothing.
  const Tensors before = GradientsOf(parameters_);
  const int64_t live_bytes = ledger_.LiveBytes();
  call();
  bytes_ += ledger_.LiveBytes() - live_bytes -
            BytesOfNew(GradientsOf(parameters_), before);
}

}  // namespace trainsys
