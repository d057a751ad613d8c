#include "trainsys/autograd/gradient_hook.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using torch::autograd::variable_list;
using torch::autograd::utils::LambdaPostHook;

std::shared_ptr<torch::autograd::Node> Accumulator(const at::Tensor& t) {
  if (!t.defined() || !t.is_leaf() || !t.requires_grad()) {
    throw collectives::InvalidArgument(
        "GradientHook: the tensor has no gradient of its own; pass a leaf "
        "tensor with requires_grad");
  }
  return torch::autograd::impl::grad_accumulator(t);
}

}  // namespace

GradientHook::GradientHook(const at::Tensor& parameter,
                           std::function<void()> on_accumulated)
    : accumulator_(Accumulator(parameter)),
      key_(accumulator_->add_post_hook(std::make_unique<LambdaPostHook>(
          [on_accumulated = std::move(on_accumulated)](
              const variable_list& outputs, const variable_list&) {
            on_accumulated();
            return outputs;
          }))) {}

GradientHook::~GradientHook() { Remove(); }

GradientHook::GradientHook(GradientHook&& other) noexcept
    : accumulator_(std::move(other.accumulator_)), key_(other.key_) {}

GradientHook& GradientHook::operator=(GradientHook&& other) noexcept {
  if (this != &other) {
    Remove();
    accumulator_ = std::move(other.accumulator_);
    key_ = other.key_;
  }
  return *this;
}

bool GradientHook::IsOn(const at::Tensor& parameter) const {
  return torch::autograd::impl::grad_accumulator(parameter) == accumulator_;
}

void GradientHook::Remove() {
  if (accumulator_ != nullptr) accumulator_->del_post_hook(key_);
  accumulator_ = nullptr;
}

}  // namespace trainsys
