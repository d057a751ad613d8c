#include "trainsys/proof/references.h"

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <utility>

namespace trainsys {
namespace {

template <typename LibtorchOptimizer>
class Wrapped final : public Optimizer {
 public:
  template <typename Options>
  Wrapped(std::vector<at::Tensor> parameters, const Options& options)
      : parameters_(std::move(parameters)), optimizer_(parameters_, options) {}

  void ZeroGrad() override {
    for (at::Tensor& p : parameters_) {
      if (p.grad().defined()) p.mutable_grad().zero_();
    }
  }
  void StepScaled(double gradient_scale) override {
    if (gradient_scale != 1) {
      for (at::Tensor& p : parameters_) {
        if (p.grad().defined()) p.mutable_grad().mul_(gradient_scale);
      }
    }
    optimizer_.step();
  }
  double GradNorm() override {
    double squares = 0;
    for (const at::Tensor& p : parameters_) {
      if (!p.grad().defined()) continue;
      const double norm = p.grad().to(at::kDouble).norm().item<double>();
      squares += norm * norm;
    }
    return std::sqrt(squares);
  }
  // Reported by no one: libtorch's optimizers are references here.
  int64_t StateBytes() const override { return 0; }

 private:
  std::vector<at::Tensor> parameters_;
  LibtorchOptimizer optimizer_;
};

}  // namespace

std::unique_ptr<Optimizer> LibtorchSGD(std::vector<at::Tensor> parameters,
                                       double lr) {
  return std::make_unique<Wrapped<torch::optim::SGD>>(
      std::move(parameters), torch::optim::SGDOptions(lr));
}

std::unique_ptr<Optimizer> LibtorchAdamW(std::vector<at::Tensor> parameters,
                                         const AdamWOptions& options) {
  return std::make_unique<Wrapped<torch::optim::AdamW>>(
      std::move(parameters),
      torch::optim::AdamWOptions(options.lr)
          .betas(std::make_tuple(options.beta1, options.beta2))
          .eps(options.eps)
          .weight_decay(options.weight_decay));
}

void TrainInMicroSteps(
    const std::vector<at::Tensor>& parameters, Optimizer& optimizer,
    int64_t steps, int ranks,
    const std::function<at::Tensor(int64_t step, int rank)>& loss_of) {
  for (int64_t step = 0; step < steps; ++step) {
    // Not from +0: the sum of -0 and +0 is +0.
    for (const at::Tensor& p : parameters) p.mutable_grad().reset();
    for (int rank = 0; rank < ranks; ++rank) loss_of(step, rank).backward();
    for (const at::Tensor& p : parameters) {
      if (p.grad().defined()) p.grad().div_(ranks);
    }
    optimizer.Step();
  }
}

void TrainOnWholeBatch(Optimizer& optimizer, int64_t steps,
                       const std::function<at::Tensor(int64_t step)>& loss_of) {
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.ZeroGrad();
    loss_of(step).backward();
    optimizer.Step();
  }
}

}  // namespace trainsys
