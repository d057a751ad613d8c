// The updates for accelerators, on tensors of this host: the kernels' formulas.
#include "trainsys/zero/update_on_device.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "trainsys/optim/update.h"

namespace trainsys {
namespace {

constexpr int64_t kElems = 1000;
constexpr double kScale = 0.75;

std::span<double> SpanOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr<double>(), static_cast<size_t>(tensor.numel())};
}

// All branches that there are.
std::vector<OptimizerOptions> Kinds() {
  std::vector<OptimizerOptions> kinds;
  for (const double decay : {0.0, 0.1}) {
    kinds.push_back(AdamWOptions{1e-2, 0.9, 0.95, 1e-8, decay});
    kinds.push_back(AdamOptions{1e-2, 0.9, 0.95, 1e-8, decay});
    for (const Decay where : {Decay::kInGradient, Decay::kDecoupled}) {
      kinds.push_back(
          SGDOptions{.lr = 1e-2, .weight_decay = decay, .decay = where});
      kinds.push_back(SGDOptions{.lr = 1e-2,
                                 .momentum = 0.9,
                                 .dampening = 0.25,
                                 .weight_decay = decay,
                                 .decay = where});
      kinds.push_back(SGDOptions{.lr = 1e-2,
                                 .momentum = 0.9,
                                 .nesterov = true,
                                 .weight_decay = decay,
                                 .decay = where});
    }
  }
  return kinds;
}

bool Close(const at::Tensor& a, const at::Tensor& b) {
  return !a.defined() || at::allclose(a, b, 1e-12, 1e-13);
}

class UpdateOnDeviceTest : public testing::TestWithParam<OptimizerOptions> {};

TEST_P(UpdateOnDeviceTest, UpdatesAsTheKernelDoesOverSeveralSteps) {
  at::Tensor p = at::randn({kElems}, at::kDouble);
  const at::Tensor kernel_p = p.clone();
  std::array<at::Tensor, 2> moments;
  std::array<at::Tensor, 2> kernel_moments;
  for (size_t i = 0; i < static_cast<size_t>(NumMoments(GetParam())); ++i) {
    moments[i] = at::zeros({kElems}, at::kDouble);
    kernel_moments[i] = at::zeros({kElems}, at::kDouble);
  }
  for (int64_t step = 1; step <= 5; ++step) {
    const at::Tensor gradient = at::randn({kElems}, at::kDouble);
    const at::Tensor before = gradient.clone();
    UpdateOnDevice(GetParam(), step, kScale, p, gradient, moments);
    EXPECT_TRUE(gradient.equal(before));
    UpdateElements<double>(
        GetParam(), step, kScale,
        {SpanOf(kernel_p),
         SpanOf(gradient),
         {SpanOf(kernel_moments[0]), SpanOf(kernel_moments[1])}});
    EXPECT_TRUE(Close(p, kernel_p)) << "step " << step;
    EXPECT_TRUE(Close(moments[0], kernel_moments[0])) << "step " << step;
    EXPECT_TRUE(Close(moments[1], kernel_moments[1])) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, UpdateOnDeviceTest, testing::ValuesIn(Kinds()),
    [](const testing::TestParamInfo<OptimizerOptions>& info) {
      return NameOf(info.param) + std::to_string(info.index);
    });

}  // namespace
}  // namespace trainsys
