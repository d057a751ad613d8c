#include "trainsys/ddp/gradient_store.h"

#include <sstream>

#include "collectives/errors.h"

namespace trainsys {

// Whoever sets a gradient may set anything.
bool IsLike(const at::Tensor& grad, const at::Tensor& parameter) {
  return grad.layout() == at::kStrided && grad.sizes() == parameter.sizes() &&
         grad.scalar_type() == parameter.scalar_type();
}

void RefuseUnlike(const at::Tensor& grad, const at::Tensor& parameter) {
  if (IsLike(grad, parameter)) return;
  std::ostringstream text;
  text << "a parameter " << parameter.sizes() << " "
       << c10::toString(parameter.scalar_type()) << " has a gradient "
       << grad.sizes() << " " << c10::toString(grad.scalar_type())
       << (grad.layout() == at::kStrided ? "" : " that is sparse")
       << "; expected the same shape and dtype, dense";
  throw collectives::InvalidArgument(text.str());
}

std::vector<ParameterSize> SizesOf(const std::vector<at::Tensor>& parameters) {
  std::vector<ParameterSize> sizes;
  for (const at::Tensor& p : parameters) {
    sizes.push_back({p.numel(), static_cast<int64_t>(p.element_size()),
                     static_cast<int>(p.scalar_type())});
  }
  return sizes;
}

}  // namespace trainsys
