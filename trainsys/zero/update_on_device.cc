#include "trainsys/zero/update_on_device.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

namespace trainsys {
namespace {

struct Tensors {
  at::Tensor parameter;
  at::Tensor gradient;  // scaled; not to be written
  std::array<at::Tensor, 2> moments;
};

// AdamW's and Adam's, after the decay.
template <typename Options>
void UpdateAdam(const Options& o, int64_t step, const Tensors& t) {
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const auto& [m, v] = t.moments;
  m.mul_(o.beta1).add_(t.gradient, 1 - o.beta1);
  v.mul_(o.beta2).addcmul_(t.gradient, t.gradient, 1 - o.beta2);
  const at::Tensor denominator =
      at::sqrt(v).div_(std::sqrt(correction2)).add_(o.eps);
  t.parameter.addcdiv_(m, denominator, -o.lr / correction1);
}

template <typename Options>
void DecayGradient(const Options& o, Tensors& t) {
  if (o.weight_decay == 0) return;
  t.gradient = at::add(t.gradient, t.parameter, o.weight_decay);
}

template <typename Options>
void DecayParameter(const Options& o, const Tensors& t) {
  if (o.weight_decay != 0) t.parameter.mul_(1 - o.lr * o.weight_decay);
}

void Update(const AdamWOptions& o, int64_t step, Tensors t) {
  DecayParameter(o, t);
  UpdateAdam(o, step, t);
}

void Update(const AdamOptions& o, int64_t step, Tensors t) {
  DecayGradient(o, t);
  UpdateAdam(o, step, t);
}

void Update(const SGDOptions& o, int64_t step, Tensors t) {
  if (o.decay == Decay::kInGradient) {
    DecayGradient(o, t);
  } else {
    DecayParameter(o, t);
  }
  if (o.momentum == 0) {
    t.parameter.add_(t.gradient, -o.lr);
    return;
  }
  const at::Tensor& m = t.moments[0];
  if (step == 1) {
    m.copy_(t.gradient);
  } else {
    m.mul_(o.momentum).add_(t.gradient, 1 - o.dampening);
  }
  t.parameter.add_(o.nesterov ? at::add(t.gradient, m, o.momentum) : m, -o.lr);
}

}  // namespace

void UpdateOnDevice(const OptimizerOptions& options, int64_t step,
                    double gradient_scale, at::Tensor parameter,
                    const at::Tensor& gradient,
                    std::array<at::Tensor, 2> moments) {
  const at::Tensor scaled =
      gradient_scale == 1 ? gradient : at::mul(gradient, gradient_scale);
  std::visit(
      [&](const auto& o) {
        Update(o, step, {parameter, scaled, moments});
      },
      options);
}

}  // namespace trainsys
