#include "trainsys/zero/flat_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

void Check(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty()) {
    throw InvalidArgument("no parameters to optimize, expected one at least");
  }
  const at::Tensor& first = parameters[0];
  std::set<const at::TensorImpl*> seen;
  for (const at::Tensor& p : parameters) {
    if (!seen.insert(p.unsafeGetTensorImpl()).second) {
      throw InvalidArgument(
          "a parameter is listed twice, expected tied ones once: take "
          "BucketedDDP's parameters()");
    }
    if (p.scalar_type() != first.scalar_type() ||
        p.device() != first.device()) {
      throw InvalidArgument(
          "parameters of several dtypes or devices, expected one: make an "
          "optimizer for each");
    }
  }
  if (first.scalar_type() != at::kFloat && first.scalar_type() != at::kDouble) {
    throw InvalidArgument(std::string("parameters of ") +
                          c10::toString(first.scalar_type()) +
                          ", expected f32 or f64");
  }
}

}  // namespace

FlatParameters::FlatParameters(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  Check(parameters_);
  for (const at::Tensor& p : parameters_) elems_of_.push_back(p.numel());
  layout_ = LayOut(elems_of_, parameters_[0].element_size());
  flat_ =
      at::zeros({layout_.elems}, parameters_[0].options().requires_grad(false));
  int64_t padding = layout_.elems;
  for (int64_t n : elems_of_) padding -= n;
  Attribute(flat_, MemoryCategory::kParameter, padding * elem_bytes());
  TakeBack();
}

void FlatParameters::TakeBack() {
  const c10::AutoGradMode no_grad(false);
  auto* const begin = static_cast<char*>(flat_.data_ptr());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& p = parameters_[i];
    const bool is_there =
        p.numel() == 0 ||
        p.data_ptr() == begin + layout_.offsets[i] * elem_bytes();
    if (is_there) continue;
    if (p.numel() != elems_of_[i] || p.scalar_type() != flat_.scalar_type()) {
      throw InvalidArgument(
          "a parameter has changed its size or dtype; make a new optimizer");
    }
    at::Tensor in_flat = AliasOf(flat_, layout_.offsets[i], p.sizes());
    in_flat.copy_(p);
    p.set_data(in_flat);
  }
}

std::vector<FlatParameters::Piece> FlatParameters::PiecesOf(
    const Shard& shard) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t offset = layout_.offsets[i];
    const int64_t begin = std::max(shard.begin, offset);
    const int64_t end = std::min(shard.end(), offset + parameters_[i].numel());
    if (begin >= end) continue;
    pieces.push_back({i, begin - offset, begin - shard.begin, end - begin});
  }
  return pieces;
}

}  // namespace trainsys
