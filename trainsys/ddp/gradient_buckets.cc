#include "trainsys/ddp/gradient_buckets.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <sstream>

#include "collectives/errors.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

std::vector<ParameterSize> SizesOf(const std::vector<at::Tensor>& parameters) {
  std::vector<ParameterSize> sizes;
  for (const at::Tensor& p : parameters) {
    sizes.push_back({p.numel(), static_cast<int64_t>(p.element_size()),
                     static_cast<int>(p.scalar_type())});
  }
  return sizes;
}

// Whoever sets a gradient may set anything.
bool IsLike(const at::Tensor& grad, const at::Tensor& parameter) {
  return grad.layout() == at::kStrided && grad.sizes() == parameter.sizes() &&
         grad.scalar_type() == parameter.scalar_type();
}

void RefuseUnlike(const at::Tensor& grad, const at::Tensor& parameter) {
  if (IsLike(grad, parameter)) return;
  std::ostringstream text;
  text << "a parameter " << parameter.sizes() << " "
       << c10::toString(parameter.scalar_type()) << " has a gradient "
       << grad.sizes() << " " << c10::toString(grad.scalar_type())
       << (grad.layout() == at::kStrided ? "" : " that is sparse")
       << "; expected the same shape and dtype, dense";
  throw collectives::InvalidArgument(text.str());
}

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<at::Tensor>& parameters,
                                 const std::vector<size_t>& order,
                                 const BucketLimits& limits)
    : parameters_(parameters),
      plan_(PlanBuckets(SizesOf(parameters), order, limits)),
      places_(parameters.size()) {
  for (size_t b = 0; b < plan_.size(); ++b) MakeBucket(b);
}

void GradientBuckets::MakeBucket(size_t bucket) {
  const Bucket& plan = plan_[bucket];
  labels_.push_back("bucket " + std::to_string(bucket));
  flat_.push_back(at::zeros(
      {plan.layout.elems},
      parameters_[plan.parameters[0]].options().requires_grad(false)));
  int64_t padding = plan.layout.elems;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const size_t p = plan.parameters[i];
    padding -= parameters_[p].numel();
    Place& place = places_[p];
    place.bucket = bucket;
    place.offset = plan.layout.offsets[i];
    place.elems = parameters_[p].numel();
    place.gradient = Values(p);
    place.data = place.gradient.data_ptr();
    const at::Tensor& grad = parameters_[p].grad();
    // Any other is refused when it is needed.
    if (grad.defined() && IsLike(grad, parameters_[p])) Bring(p);
  }
  Attribute(flat_[bucket], MemoryCategory::kGradient,
            padding * flat_[bucket].element_size());
}

bool GradientBuckets::Fits(size_t parameter) const {
  const Place& place = places_[parameter];
  return parameters_[parameter].numel() == place.elems &&
         parameters_[parameter].scalar_type() ==
             flat_[place.bucket].scalar_type();
}

bool GradientBuckets::Bring(size_t parameter) {
  const at::Tensor& grad = parameters_[parameter].grad();
  Place& place = places_[parameter];
  if (!grad.defined()) {
    Values(parameter).zero_();
    return false;
  }
  RefuseUnlike(grad, parameters_[parameter]);
  if (grad.data_ptr() != place.data || !grad.is_contiguous()) {
    if (grad.is_cpu() && grad.is_contiguous()) {
      // A tenth of what copy_ takes for few elements.
      std::memcpy(place.data, grad.data_ptr(), grad.nbytes());
    } else {
      Values(parameter).copy_(grad.detach().contiguous());
    }
    Show(parameter);
  }
  return true;
}

at::Tensor GradientBuckets::Values(size_t parameter) const {
  const Place& place = places_[parameter];
  return AliasOf(flat_[place.bucket], place.offset,
                 parameters_[parameter].sizes());
}

void GradientBuckets::Show(size_t parameter) {
  Place& place = places_[parameter];
  const at::Tensor& p = parameters_[parameter];
  // Whoever held the gradient may have pointed it elsewhere.
  const bool is_intact = place.gradient.data_ptr() == place.data &&
                         place.gradient.sizes() == p.sizes() &&
                         place.gradient.is_contiguous();
  if (!is_intact) place.gradient = Values(parameter);
  p.mutable_grad() = place.gradient;
}

void GradientBuckets::Divide(size_t bucket, double divisor) {
  flat_[bucket].div_(divisor);
}

int64_t GradientBuckets::Bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& flat : flat_) {
    bytes += static_cast<int64_t>(flat.storage().nbytes());
  }
  return bytes;
}

}  // namespace trainsys
