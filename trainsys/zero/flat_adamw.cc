#include "trainsys/zero/flat_adamw.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <span>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/zero/adamw_on_device.h"

namespace trainsys {
namespace {

AdamWOptions Valid(const AdamWOptions& options) {
  Validate(options);
  return options;
}

}  // namespace

FlatAdamW::FlatAdamW(std::vector<at::Tensor> parameters,
                     const AdamWOptions& options)
    : FlatAdamW(std::move(parameters), options, 1, 0) {}

FlatAdamW::FlatAdamW(std::vector<at::Tensor> parameters,
                     const AdamWOptions& options, int num_shards, int owned)
    : options_(Valid(options)),
      parameters_(std::move(parameters)),
      shards_(PlanShards(parameters_.elems(), parameters_.elem_bytes(),
                         num_shards)),
      owned_(owned),
      pieces_(parameters_.PiecesOf(shard())),
      num_steps_(pieces_.size()),
      m_(at::zeros({shard().elems}, parameters_.flat().options())),
      v_(at::zeros({shard().elems}, parameters_.flat().options())) {
  int64_t padding = shard().elems;
  for (const FlatParameters::Piece& piece : pieces_) padding -= piece.elems;
  for (const at::Tensor& state : {m_, v_}) {
    Attribute(state, MemoryCategory::kOptimizerState,
              padding * parameters_.elem_bytes());
  }
}

void FlatAdamW::ZeroGrad() {
  for (const at::Tensor& p : parameters_.parameters()) {
    if (p.grad().defined()) p.grad().zero_();
  }
}

void FlatAdamW::Step() {
  parameters_.TakeBack();
  CheckGradients();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const at::Tensor& p = parameters_.parameters()[pieces_[i].parameter];
    if (!p.grad().defined()) continue;
    if (!m_.is_cpu()) {
      UpdateOnDevice(i, p.grad().contiguous());
    } else if (m_.scalar_type() == at::kFloat) {
      Update<float>(i, p.grad().contiguous());
    } else {
      Update<double>(i, p.grad().contiguous());
    }
    MarkWritten(p);
  }
}

void FlatAdamW::CheckGradients() const {
  for (const FlatParameters::Piece& piece : pieces_) {
    const at::Tensor& grad = parameters_.parameters()[piece.parameter].grad();
    if (grad.defined() && grad.scalar_type() != m_.scalar_type()) {
      throw collectives::InvalidArgument(
          "a gradient of another dtype than its parameter, expected the same");
    }
  }
}

template <typename T>
void FlatAdamW::Update(size_t i, const at::Tensor& grad) {
  const FlatParameters::Piece& piece = pieces_[i];
  const auto elems = static_cast<size_t>(piece.elems);
  T* param = parameters_.flat().data_ptr<T>() + shard().begin;
  AdamWStep<T>(options_, ++num_steps_[i], {param + piece.in_shard, elems},
               {grad.data_ptr<T>() + piece.begin, elems},
               {m_.data_ptr<T>() + piece.in_shard, elems},
               {v_.data_ptr<T>() + piece.in_shard, elems});
}

void FlatAdamW::UpdateOnDevice(size_t i, const at::Tensor& grad) {
  const c10::AutoGradMode no_grad(false);
  const FlatParameters::Piece& piece = pieces_[i];
  const auto part = [&piece](const at::Tensor& flat, int64_t begin) {
    return flat.view({-1}).narrow(0, begin, piece.elems);
  };
  AdamWStepOnDevice(options_, ++num_steps_[i],
                    part(parameters_.flat(), shard().begin + piece.in_shard),
                    part(grad, piece.begin), part(m_, piece.in_shard),
                    part(v_, piece.in_shard));
}

int64_t FlatAdamW::StateBytes() const {
  return static_cast<int64_t>(m_.storage().nbytes() + v_.storage().nbytes());
}

}  // namespace trainsys
