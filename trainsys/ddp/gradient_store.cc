#include "trainsys/ddp/gradient_store.h"

namespace trainsys {

std::vector<ParameterSize> SizesOf(const std::vector<at::Tensor>& parameters) {
  std::vector<ParameterSize> sizes;
  for (const at::Tensor& p : parameters) {
    sizes.push_back({p.numel(), static_cast<int64_t>(p.element_size()),
                     static_cast<int>(p.scalar_type())});
  }
  return sizes;
}

}  // namespace trainsys
