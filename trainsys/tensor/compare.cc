#include "trainsys/tensor/compare.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace trainsys {

std::vector<at::Tensor> Snapshot(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

double MaxDifference(const std::vector<at::Tensor>& a,
                     const std::vector<at::Tensor>& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const c10::AutoGradMode no_grad(false);
  if (a.size() != b.size()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes()) return kInfinity;
    if (a[i].numel() == 0) continue;
    const double difference =
        (a[i].cpu().to(at::kDouble) - b[i].cpu().to(at::kDouble))
            .abs()
            .max()
            .item<double>();
    if (std::isnan(difference)) return kInfinity;
    largest = std::max(largest, difference);
  }
  return largest;
}

bool EqualBits(const std::vector<at::Tensor>& a,
               const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (!a[i].defined()) continue;
    if (a[i].sizes() != b[i].sizes() || a[i].dtype() != b[i].dtype()) {
      return false;
    }
    const at::Tensor x = a[i].detach().cpu().contiguous();
    const at::Tensor y = b[i].detach().cpu().contiguous();
    if (x.numel() > 0 &&
        std::memcmp(x.data_ptr(), y.data_ptr(),
                    static_cast<size_t>(x.numel()) * x.element_size()) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace trainsys
