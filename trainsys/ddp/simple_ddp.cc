#include "trainsys/ddp/simple_ddp.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "collectives/errors.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::Error;

SimpleDDP::SimpleDDP(const torch::nn::Module& module,
                     collectives::Communicator& comm)
    : comm_(comm.Duplicate("ddp")) {
  CheckSameStructure(module, *comm_);
  CheckSameValues(module, *comm_);
  RefuseSparseGradients(module);
  trained_ = TrainedOf(ParametersOf(module));
  AttributeMemoryOf(module);
}

void SimpleDDP::BeginForward() {
  if (c10::GradMode::is_enabled()) has_forward_ = !HasNoSync();
}

void SimpleDDP::FinishGradientSync() {
  if (!std::exchange(has_forward_, false)) throw Error(kNothingToFinish);
  for (size_t p = trained_.tensors.size(); p-- > 0;) {
    at::Tensor& grad = trained_.tensors[p].mutable_grad();
    if (!grad.defined()) {
      throw Error("FinishGradientSync: no gradient for '" + trained_.names[p] +
                  "'; expected a backward() that uses it");
    }
    if (!grad.is_contiguous()) grad = grad.contiguous();
    Attribute(grad, MemoryCategory::kGradient);
    comm_->AllReduce(BufferOf(grad), collectives::ReduceOp::kAverage,
                     trained_.names[p]);
  }
}

}  // namespace trainsys
