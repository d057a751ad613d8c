#include "trainsys/ddp/async_ddp.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "collectives/errors.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::Error;
using collectives::Work;

AsyncDDP::AsyncDDP(const torch::nn::Module& module,
                   collectives::Communicator& comm)
    : comm_(comm.Duplicate("ddp")),
      trained_(TrainedParametersOf(module)),
      works_(trained_.tensors.size()),
      is_ready_(trained_.tensors.size()) {
  CheckSameStructure(module, *comm_);
  CheckSameValues(module, *comm_);
  AttributeMemoryOf(module);
  hooks_ = ParameterHooks(trained_.tensors,
                          [this](size_t p) { OnGradientReady(p); });
}

void AsyncDDP::BeginForward() {
  if (!c10::GradMode::is_enabled()) return;
  has_forward_ = !HasNoSync();
  hooks_.Renew();
}

void AsyncDDP::OnGradientReady(size_t parameter) {
  if (!has_forward_) return;
  if (is_ready_[parameter]) {
    throw Error("parameter '" + trained_.names[parameter] +
                "' got a second gradient before FinishGradientSync; expected "
                "one backward between two of them, or NoSync");
  }
  is_ready_[parameter] = true;
  at::Tensor& grad = trained_.tensors[parameter].mutable_grad();
  if (!grad.is_contiguous()) grad = grad.contiguous();
  Attribute(grad, MemoryCategory::kGradient);
  works_[parameter] =
      comm_->StartAllReduce(BufferOf(grad), collectives::ReduceOp::kAverage,
                            trained_.names[parameter]);
}

void AsyncDDP::FinishGradientSync() {
  if (!std::exchange(has_forward_, false)) throw Error(kNothingToFinish);
  const size_t n = works_.size();
  std::vector<Work> works = std::exchange(works_, std::vector<Work>(n));
  const std::vector<bool> is_ready =
      std::exchange(is_ready_, std::vector<bool>(n));
  for (size_t p = 0; p < n; ++p) {
    if (is_ready[p]) continue;
    throw Error("FinishGradientSync: no gradient for '" + trained_.names[p] +
                "'; expected a backward() that uses it");
  }
  for (Work& work : works) work.Wait();
}

}  // namespace trainsys
