#include "trainsys/ddp/async_ddp.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "collectives/errors.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::Error;

AsyncDDP::AsyncDDP(const torch::nn::Module& module,
                   collectives::Communicator& comm)
    : comm_(comm.Duplicate("ddp")) {
  CheckSameStructure(module, *comm_);
  CheckSameValues(module, *comm_);
  RefuseSparseGradients(module);
  trained_ = TrainedOf(ParametersOf(module));
  is_ready_.resize(trained_.tensors.size());
  AttributeMemoryOf(module);
  hooks_ = ParameterHooks(trained_.tensors,
                          [this](size_t p) { OnGradientReady(p); });
}

void AsyncDDP::BeginForward() {
  if (!c10::GradMode::is_enabled()) return;
  if (!in_flight_.empty()) {
    throw Error(
        "BeginForward: gradients are on their way; expected "
        "FinishGradientSync first, or NoSync around the forward before");
  }
  has_forward_ = !HasNoSync();
  hooks_.Renew();
}

void AsyncDDP::OnGradientReady(size_t parameter) {
  if (!has_forward_) return;
  const std::string& name = trained_.names[parameter];
  if (is_ready_[parameter]) {
    throw Error("parameter '" + name +
                "' got a second gradient before FinishGradientSync; expected "
                "one backward between two of them, or NoSync");
  }
  is_ready_[parameter] = true;
  at::Tensor& grad = trained_.tensors[parameter].mutable_grad();
  if (!grad.is_contiguous()) grad = grad.contiguous();
  Attribute(grad, MemoryCategory::kGradient);
  in_flight_.push_back(
      {parameter, grad,
       comm_->StartAllReduce(BufferOf(grad), collectives::ReduceOp::kAverage,
                             name)});
}

void AsyncDDP::FinishGradientSync() {
  if (!std::exchange(has_forward_, false)) throw Error(kNothingToFinish);
  std::vector<InFlight> in_flight = std::exchange(in_flight_, {});
  const std::vector<bool> is_ready =
      std::exchange(is_ready_, std::vector<bool>(is_ready_.size()));
  for (size_t p = 0; p < is_ready.size(); ++p) {
    if (is_ready[p]) continue;
    throw Error("FinishGradientSync: no gradient for '" + trained_.names[p] +
                "'; expected a backward() that uses it");
  }
  for (InFlight& one : in_flight) {
    one.work.Wait();
    trained_.tensors[one.parameter].mutable_grad() = one.gradient;
  }
}

}  // namespace trainsys
