#include "trainsys/ddp/parameter_hooks.h"

#include <utility>

#include "trainsys/memory/ledger.h"

namespace trainsys {

ParameterHooks::ParameterHooks(std::vector<at::Tensor> parameters,
                               Callback on_ready)
    : parameters_(std::move(parameters)), on_ready_(std::move(on_ready)) {
  for (size_t p = 0; p < parameters_.size(); ++p) hooks_.push_back(Hook(p));
}

void ParameterHooks::Renew() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (hooks_[p].IsOn(parameters_[p])) continue;
    hooks_[p] = Hook(p);
    Attribute(parameters_[p], MemoryCategory::kParameter);
  }
}

GradientHook ParameterHooks::Hook(size_t parameter) const {
  return GradientHook(
      parameters_[parameter],
      [on_ready = on_ready_, parameter] { on_ready(parameter); });
}

}  // namespace trainsys
