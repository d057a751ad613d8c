#include "trainsys/zero/flat_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <set>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

std::vector<at::Tensor> Checked(std::vector<at::Tensor> parameters) {
  if (parameters.empty()) {
    throw InvalidArgument("no parameters to optimize, expected one at least");
  }
  std::set<const at::TensorImpl*> seen;
  for (const at::Tensor& p : parameters) {
    if (!seen.insert(p.unsafeGetTensorImpl()).second) {
      throw InvalidArgument(
          "a parameter is listed twice, expected tied ones once: take "
          "BucketedDDP's parameters()");
    }
    if (p.device() != parameters[0].device()) {
      throw InvalidArgument(
          "parameters on several devices, expected one: make an optimizer for "
          "each");
    }
    if (p.scalar_type() != at::kFloat && p.scalar_type() != at::kDouble) {
      throw InvalidArgument(std::string("parameters of ") +
                            c10::toString(p.scalar_type()) +
                            ", expected f32 or f64");
    }
  }
  return parameters;
}

}  // namespace

FlatParameters::FlatParameters(std::vector<at::Tensor> parameters,
                               ShardPlan plan)
    : parameters_(Checked(std::move(parameters))), plan_(std::move(plan)) {
  flat_ =
      at::zeros({plan_.bytes},
                parameters_[0].options().dtype(at::kByte).requires_grad(false));
  int64_t padding = plan_.bytes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    dtypes_.push_back(parameters_[i].scalar_type());
    padding -= plan_.tensor_bytes[i];
  }
  Attribute(flat_, MemoryCategory::kParameter, padding);
  TakeBack();
}

bool FlatParameters::IsInPlace(size_t parameter) const {
  const at::Tensor& p = parameters_[parameter];
  const auto* const begin = static_cast<const char*>(flat_.data_ptr());
  return p.numel() == 0 || (p.data_ptr() == begin + plan_.offsets[parameter] &&
                            p.is_contiguous());
}

void FlatParameters::TakeBack() {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::pair<size_t, at::Tensor>> elsewhere;  // and the values
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& p = parameters_[i];
    if (static_cast<int64_t>(p.nbytes()) != plan_.tensor_bytes[i] ||
        p.scalar_type() != dtypes_[i]) {
      throw InvalidArgument(
          "a parameter has changed its size or dtype; make a new optimizer");
    }
    if (IsInPlace(i)) continue;
    const bool is_over_flat = p.storage().is_alias_of(flat_.storage());
    elsewhere.emplace_back(i, is_over_flat ? p.detach().clone() : p.detach());
  }
  for (const auto& [i, values] : elsewhere) {
    at::Tensor in_flat =
        AliasOfBytes(flat_, plan_.offsets[i], dtypes_[i], values.sizes());
    in_flat.copy_(values);
    parameters_[i].set_data(in_flat);
  }
}

collectives::Buffer FlatParameters::Part(int64_t begin, int64_t bytes) const {
  return BufferOf(AliasOf(flat_, begin, {bytes}));
}

}  // namespace trainsys
