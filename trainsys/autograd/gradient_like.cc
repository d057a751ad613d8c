#include "trainsys/autograd/gradient_like.h"

#include <sstream>

#include "collectives/errors.h"

namespace trainsys {

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

}  // namespace trainsys
