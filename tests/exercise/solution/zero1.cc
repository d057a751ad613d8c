#include "tests/exercise/solution/zero1.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <span>
#include <utility>

#include "trainsys/optim/update.h"
#include "trainsys/tensor/tensor_memory.h"

namespace exercise {
namespace {

using trainsys::BufferOf;

at::Tensor Flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& t : tensors) flat.push_back(t.detach().flatten());
  return at::cat(flat);
}

std::span<float> Span(const at::Tensor& t) {
  return {t.data_ptr<float>(), static_cast<size_t>(t.numel())};
}

}  // namespace

ZeRO1::ZeRO1(std::vector<at::Tensor> parameters,
             collectives::Communicator& comm,
             const trainsys::AdamWOptions& options)
    : parameters_(std::move(parameters)),
      comm_(comm.Duplicate("my zero")),
      options_(options),
      flat_(Flat(parameters_)) {
  int64_t offset = 0;
  for (at::Tensor p : parameters_) {
    p.set_data(flat_.narrow(0, offset, p.numel()).view_as(p));
    offset += p.numel();
  }
  // The first ranks take one element more where the division leaves some.
  const int64_t ranks = comm_->ranks(), elems = flat_.numel();
  for (int64_t r = 0; r < ranks; ++r) {
    counts_.push_back(elems / ranks + (r < elems % ranks ? 1 : 0));
    if (r < comm_->rank()) begin_ += counts_.back();
  }
  m_ = at::zeros({counts_[comm_->rank()]});
  v_ = at::zeros({counts_[comm_->rank()]});
}

void ZeRO1::ZeroGrad() {
  for (const at::Tensor& p : parameters_) p.mutable_grad().reset();
}

void ZeRO1::StepScaled(double gradient_scale) {
  const at::Tensor mine = flat_.narrow(0, begin_, m_.numel());
  const at::Tensor gradient = FlatGradients().narrow(0, begin_, m_.numel());
  trainsys::UpdateElements<float>(
      options_, ++step_, gradient_scale,
      {Span(mine), Span(gradient), {Span(m_), Span(v_)}});
  comm_->AllGather(BufferOf(mine), BufferOf(flat_), counts_, "parameters");
}

// FinishGradientSync has made all gradients the same on all ranks.
double ZeRO1::GradNorm() { return FlatGradients().norm().item<double>(); }

int64_t ZeRO1::StateBytes() const {
  return static_cast<int64_t>(m_.nbytes() + v_.nbytes());
}

at::Tensor ZeRO1::FlatGradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : parameters_) gradients.push_back(p.grad());
  return Flat(gradients);
}

}  // namespace exercise
