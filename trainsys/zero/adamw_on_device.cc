#include "trainsys/zero/adamw_on_device.h"

#include <ATen/ops/sqrt.h>

#include <cmath>

namespace trainsys {

void AdamWStepOnDevice(const AdamWOptions& options, int64_t step,
                       at::Tensor parameter, const at::Tensor& gradient,
                       at::Tensor m, at::Tensor v) {
  const auto t = static_cast<double>(step);
  const double correction1 = 1 - std::pow(options.beta1, t);
  const double correction2 = 1 - std::pow(options.beta2, t);
  parameter.mul_(1 - options.lr * options.weight_decay);
  m.mul_(options.beta1).add_(gradient, 1 - options.beta1);
  v.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
  const at::Tensor denominator =
      at::sqrt(v).div_(std::sqrt(correction2)).add_(options.eps);
  parameter.addcdiv_(m, denominator, -options.lr / correction1);
}

}  // namespace trainsys
