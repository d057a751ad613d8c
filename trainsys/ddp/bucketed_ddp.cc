#include "trainsys/ddp/bucketed_ddp.h"

#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <set>
#include <utility>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::Communicator;
using collectives::Error;
using collectives::ReduceOp;

namespace {

void AttributeMemory(const torch::nn::Module& module) {
  for (const at::Tensor& p : module.parameters()) {
    Attribute(p, MemoryCategory::kParameter);
  }
  for (const at::Tensor& b : module.buffers()) {
    Attribute(b, MemoryCategory::kOther);
  }
}

}  // namespace

BucketedDDP::BucketedDDP(torch::nn::Module& module, Communicator& comm,
                         const BucketedDDPOptions& options) {
  comm_ = comm.Duplicate("ddp");
  CheckSameStructure(module, *comm_);
  AttributeMemory(module);
  std::set<const at::TensorImpl*> seen;  // a tied parameter has several names
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    names_.push_back(item.key());
    parameters_.push_back(item.value());
  }
  if (parameters_.empty()) {
    throw collectives::InvalidArgument(
        "the module has no parameter that requires a gradient, expected one "
        "at least");
  }
  MakeBuckets(options.bucket_bytes);
  BroadcastFromRank0(module, *comm_);
  ZeroGrad();
  AddHooks();
}

BucketedDDP::~BucketedDDP() = default;

void BucketedDDP::MakeBuckets(int64_t bucket_bytes) {
  std::vector<ParameterSize> sizes;
  for (const at::Tensor& p : parameters_) {
    sizes.push_back({p.numel(), static_cast<int64_t>(p.element_size()),
                     static_cast<int>(p.scalar_type())});
  }
  buckets_ = PlanBuckets(sizes, bucket_bytes);
  bucket_of_.resize(parameters_.size());
  gradients_.resize(parameters_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    flat_.push_back(at::zeros(
        {bucket.layout.elems},
        parameters_[bucket.parameters[0]].options().requires_grad(false)));
    int64_t padding = bucket.layout.elems;
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const size_t p = bucket.parameters[i];
      padding -= parameters_[p].numel();
      bucket_of_[p] = b;
      gradients_[p] =
          AliasOf(flat_[b], bucket.layout.offsets[i], parameters_[p].sizes());
    }
    Attribute(flat_[b], MemoryCategory::kGradient,
              padding * flat_[b].element_size());
    num_missing_.push_back(bucket.parameters.size());
  }
  is_ready_.resize(parameters_.size());
  ready_ns_.resize(parameters_.size());
}

void BucketedDDP::AddHooks() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    hooks_.emplace_back(parameters_[p], [this, p] { OnGradientReady(p); });
  }
}

void BucketedDDP::OnGradientReady(size_t parameter) {
  if (is_ready_[parameter]) {
    throw Error("parameter '" + names_[parameter] +
                "' got a second gradient before FinishGradientSync; expected "
                "one backward between two of them");
  }
  is_ready_[parameter] = true;
  ready_ns_[parameter] = collectives::NowNs();
  KeepInBucket(parameter);
  if (--num_missing_[bucket_of_[parameter]] == 0) PostFullBuckets();
}

// Whoever replaced or dropped the gradient has cost us this copy.
void BucketedDDP::KeepInBucket(size_t parameter) {
  at::Tensor& grad = parameters_[parameter].mutable_grad();
  if (grad.data_ptr() == gradients_[parameter].data_ptr()) return;
  gradients_[parameter].copy_(grad.detach());
  grad = gradients_[parameter];
}

void BucketedDDP::PostFullBuckets() {
  while (works_.size() < buckets_.size() && num_missing_[works_.size()] == 0) {
    const size_t b = works_.size();
    works_.push_back(comm_->StartAllReduce(
        BufferOf(flat_[b]), ReduceOp::kAverage, "bucket " + std::to_string(b)));
  }
}

void BucketedDDP::FinishGradientSync() {
  if (works_.size() < buckets_.size()) ThrowMissing();
  std::vector<collectives::Work> works = std::exchange(works_, {});
  ForgetBackward();
  for (collectives::Work& work : works) work.Wait();
}

void BucketedDDP::ForgetBackward() {
  works_.clear();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    num_missing_[b] = buckets_[b].parameters.size();
  }
  is_ready_.assign(is_ready_.size(), false);
}

void BucketedDDP::ThrowMissing() const {
  std::string text = "FinishGradientSync: no gradient for";
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!is_ready_[p]) text += " '" + names_[p] + "'";
  }
  throw Error(text +
              "; expected a backward() that uses every parameter that "
              "requires one: use or freeze them");
}

void BucketedDDP::ZeroGrad() {
  ForgetBackward();
  for (at::Tensor& flat : flat_) flat.zero_();
  for (size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p].mutable_grad() = gradients_[p];
  }
}

int64_t BucketedDDP::GradientBytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& flat : flat_) {
    bytes += static_cast<int64_t>(flat.storage().nbytes());
  }
  return bytes;
}

}  // namespace trainsys
