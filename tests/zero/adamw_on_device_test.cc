// The update for accelerators, on tensors of this host: the kernel's formula.
#include "trainsys/zero/adamw_on_device.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <span>

namespace trainsys {
namespace {

constexpr AdamWOptions kOptions{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr int64_t kElems = 1000;

std::span<double> SpanOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<double>(), static_cast<size_t>(tensor.numel())};
}

TEST(AdamWOnDeviceTest, UpdatesAsTheKernelDoesOverSeveralSteps) {
  at::Tensor p = at::randn({kElems}, at::kDouble);
  at::Tensor m = at::zeros({kElems}, at::kDouble);
  at::Tensor v = at::zeros({kElems}, at::kDouble);
  const at::Tensor kernel_p = p.clone();
  const at::Tensor kernel_m = m.clone();
  const at::Tensor kernel_v = v.clone();
  for (int64_t step = 1; step <= 5; ++step) {
    const at::Tensor gradient = at::randn({kElems}, at::kDouble);
    AdamWStepOnDevice(kOptions, step, p, gradient, m, v);
    AdamWStep<double>(kOptions, step, SpanOf(kernel_p), SpanOf(gradient),
                      SpanOf(kernel_m), SpanOf(kernel_v));
    EXPECT_TRUE(at::allclose(p, kernel_p, 1e-12, 1e-13)) << "step " << step;
    EXPECT_TRUE(at::allclose(m, kernel_m, 1e-12, 1e-13)) << "step " << step;
    EXPECT_TRUE(at::allclose(v, kernel_v, 1e-12, 1e-13)) << "step " << step;
  }
}

}  // namespace
}  // namespace trainsys
