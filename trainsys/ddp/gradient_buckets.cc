#include "trainsys/ddp/gradient_buckets.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/autograd/gradient_like.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

// A part of a contiguous tensor. Shape: [elems]
at::Tensor Part(const at::Tensor& tensor, int64_t begin, int64_t elems) {
  return AliasOf(tensor, begin, {elems});
}

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<at::Tensor>& parameters,
                                 const std::vector<size_t>& order,
                                 const BucketLimits& limits,
                                 std::optional<ShardedParameters> sharded)
    : parameters_(parameters),
      sharded_(std::move(sharded)),
      plan_(PlanBuckets(SizesOf(parameters), order, limits)),
      places_(parameters.size()) {
  const std::vector<ParameterSize> sizes = SizesOf(parameters);
  for (size_t b = 0; b < plan_.size(); ++b) {
    if (sharded_) plan_[b] = InOrderOfShards(plan_[b], sizes, *sharded_);
    MakeBucket(b);
  }
}

void GradientBuckets::MakeBucket(size_t bucket) {
  const Bucket& plan = plan_[bucket];
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
    place.is_wholly_own =
        !sharded_ || IsWhollyOwn(p, parameters_[p].nbytes(), *sharded_);
    const at::Tensor& grad = parameters_[p].grad();
    // Any other is refused when it is needed.
    if (grad.defined() && IsLike(grad, parameters_[p])) Bring(p);
  }
  const int64_t elem_bytes = flat_[bucket].element_size();
  if (sharded_) shards_.push_back(CutBucket(plan, elem_bytes, *sharded_));
  Attribute(flat_[bucket], MemoryCategory::kGradient, padding * elem_bytes);
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
    Values(parameter).fill_(-0.0);
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
    Point(parameter);
  }
  return true;
}

at::Tensor GradientBuckets::Values(size_t parameter) const {
  const Place& place = places_[parameter];
  return AliasOf(flat_[place.bucket], place.offset,
                 parameters_[parameter].sizes());
}

void GradientBuckets::Point(size_t parameter) {
  Place& place = places_[parameter];
  const at::Tensor& p = parameters_[parameter];
  // Whoever held the gradient may have pointed it elsewhere.
  const bool is_intact = place.gradient.data_ptr() == place.data &&
                         place.gradient.sizes() == p.sizes() &&
                         place.gradient.is_contiguous();
  if (!is_intact) place.gradient = Values(parameter);
  p.mutable_grad() = place.gradient;
}

void GradientBuckets::Open() {
  if (sharded_ && !is_empty_) {
    throw collectives::Error(
        "BeginForward: the gradients of the step before are at their owners "
        "only, so none can be added to them; expected ZeroGrad first, and "
        "NoSync to accumulate");
  }
}

FullBucket GradientBuckets::Close(size_t bucket) {
  FullBucket full;
  full.flat = flat_[bucket];
  full.label = "bucket " + std::to_string(bucket);
  if (sharded_) full.counts = shards_[bucket].counts;
  return full;
}

void GradientBuckets::Keep(size_t bucket, double divisor) {
  if (divisor != 1) Divide(bucket, divisor);
}

void GradientBuckets::Divide(size_t bucket, double divisor) {
  flat_[bucket].div_(divisor);
}

void GradientBuckets::Show(size_t parameter, bool has_gradient) {
  is_empty_ = false;
  places_[parameter].has_result = has_gradient;
  if (has_gradient && places_[parameter].is_wholly_own) {
    Point(parameter);
  } else {
    parameters_[parameter].mutable_grad().reset();
  }
}

void GradientBuckets::Drop() {
  is_empty_ = true;
  for (Place& place : places_) place.has_result = false;
}

at::Tensor GradientBuckets::Result(size_t parameter, int64_t begin,
                                   int64_t elems) const {
  const at::Tensor& grad = parameters_[parameter].grad();
  if (grad.defined()) {
    RefuseUnlike(grad, parameters_[parameter]);
    return Part(grad.contiguous(), begin, elems);
  }
  const Place& place = places_[parameter];
  if (place.is_wholly_own || !place.has_result) return {};
  return Reduced(parameter, begin, elems);
}

at::Tensor GradientBuckets::Reduced(size_t parameter, int64_t begin,
                                    int64_t elems) const {
  const Place& place = places_[parameter];
  return Part(flat_[place.bucket], place.offset + begin, elems);
}

int64_t GradientBuckets::Bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& flat : flat_) {
    bytes += static_cast<int64_t>(flat.storage().nbytes());
  }
  return bytes;
}

}  // namespace trainsys
