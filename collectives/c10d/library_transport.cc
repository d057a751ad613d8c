#include "collectives/c10d/library_transport.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/version.h>

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/c10d/device_scope.h"
#include "collectives/c10d/gloo_group.h"
#include "collectives/c10d/libtorch_text.h"
#include "collectives/c10d/mesh.h"
#include "collectives/c10d/store_holder.h"
#include "collectives/errors.h"

namespace collectives {
namespace {

#if TORCH_VERSION_MAJOR >= 2
using LibraryGroup = c10::intrusive_ptr<c10d::Backend>;
#else
using LibraryGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
#endif
using LibraryWork = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return at::kDouble;
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kI64:
      return at::kLong;
    case DType::kI32:
      return at::kInt;
    case DType::kU8:
      return at::kByte;
  }
  return at::kByte;
}

// Average is a sum, divided afterwards: not every library has it.
c10d::ReduceOp ReduceOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::SUM;
}

at::Tensor TensorAt(const void* data, int64_t elems, const Call& call) {
  const auto device =
      call.device == kHostMemory
          ? at::Device(at::kCPU)
          : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(call.device));
  return at::from_blob(
      const_cast<void*>(data), {elems},
      at::TensorOptions(ScalarTypeOf(call.dtype)).device(device));
}

LibraryGroup MakeGroup(Library library,
                       const c10::intrusive_ptr<c10d::Store>& store,
                       const LibraryPlace& place) {
  if (library == Library::kGloo) {
    return MakeGlooGroup(store, place.rank, place.ranks, place.host,
                         place.timeout);
  }
#ifdef USE_C10D_NCCL
  if (library == Library::kNccl) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = AsMilliseconds(place.timeout);
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, place.rank,
                                                       place.ranks, options);
  }
#endif
  throw InvalidArgument("this libtorch lacks the library that was asked for");
}

class LibraryTransport final : public Transport {
 public:
  LibraryTransport(Library library, LibraryGroup group,
                   const LibraryPlace& place, Transport& exact)
      : has_all_operations_(library == Library::kNccl),
        group_(std::move(group)),
        ranks_(place.ranks),
        timeout_(place.timeout),
        exact_(exact) {}

  void Run(const Call& call) override {
    if (!IsTheLibrarys(call)) return exact_.Run(call);
    deadline_ns_ = DeadlineAfter(timeout_);
    try {
      RunOnLibrary(call);
      AwaitDevice(call.device);  // the division too
    } catch (const std::exception& e) {
      const bool is_late = NowNs() + 1'000'000 >= deadline_ns_;
      throw LinkError(
          is_late ? LinkError::Kind::kTimeout : LinkError::Kind::kLost,
          LinkError::kSomePeer, FirstLine(e.what()));
    }
  }

 private:
  bool IsTheLibrarys(const Call& call) const {
#if TORCH_VERSION_MAJOR < 2
    // Its Gloo refuses bf16.
    if (!has_all_operations_ && call.dtype == DType::kBF16) return false;
#endif
    if (call.elems == 0) return false;
    if (has_all_operations_) return call.device != kHostMemory;
    return call.operation == Operation::kAllReduce;
  }

  void RunOnLibrary(const Call& call) {
    switch (call.operation) {
      case Operation::kAllReduce:
        return AllReduce(call);
      case Operation::kReduceScatter:
        return ReduceScatter(call);
      case Operation::kAllGather:
        return AllGather(call);
      case Operation::kBroadcast:
        return Broadcast(call);
      case Operation::kBarrier:
      case Operation::kDuplicate:
        return;
    }
  }

  void AllReduce(const Call& call) {
    Tensors data{TensorAt(call.output, call.elems, call)};
    c10d::AllreduceOptions options;
    options.reduceOp = ReduceOpOf(call.reduce_op);
    Await(group_->allreduce(data, options));
    Divide(call, data[0]);
  }

  void ReduceScatter(const Call& call) {
    const at::Tensor all = TensorAt(call.input, call.elems, call);
    const int64_t part = call.counts[static_cast<size_t>(group_->getRank())];
    Tensors outputs{TensorAt(call.output, part, call)};
    std::vector<Tensors> inputs{Parts(all, call)};
    c10d::ReduceScatterOptions options;
    options.reduceOp = ReduceOpOf(call.reduce_op);
    Await(group_->reduce_scatter(outputs, inputs, options));
    Divide(call, outputs[0]);
  }

  void AllGather(const Call& call) {
    const int64_t part = call.counts[static_cast<size_t>(group_->getRank())];
    Tensors inputs{TensorAt(call.input, part, call)};
    std::vector<Tensors> outputs{
        Parts(TensorAt(call.output, call.elems, call), call)};
    Await(group_->allgather(outputs, inputs));
  }

  void Broadcast(const Call& call) {
    Tensors data{TensorAt(call.output, call.elems, call)};
    c10d::BroadcastOptions options;
    options.rootRank = call.root;
    Await(group_->broadcast(data, options));
  }

  static Tensors Parts(const at::Tensor& all, const Call& call) {
    return all.split_with_sizes(call.counts);
  }

  void Divide(const Call& call, at::Tensor& sum) const {
    if (call.reduce_op == ReduceOp::kAverage) sum.div_(ranks_);
  }

  // An accelerator's wait() only orders its streams: the result is there once
  // the work itself says so.
  void Await(const LibraryWork& work) const {
    work->wait();
    while (!work->isCompleted()) {
      if (NowNs() > deadline_ns_) throw Error("the library does not finish");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (const auto error = work->exception()) std::rethrow_exception(error);
  }

  const bool has_all_operations_;
  LibraryGroup group_;
  const int ranks_;
  const std::chrono::nanoseconds timeout_;
  Transport& exact_;
  int64_t deadline_ns_ = 0;  // of the call that runs
};

}  // namespace

bool HasLibrary(Library library) {
  switch (library) {
    case Library::kNone:
    case Library::kGloo:
      return true;
    case Library::kNccl:
#ifdef USE_C10D_NCCL
      return true;
#else
      return false;
#endif
  }
  return false;
}

std::unique_ptr<Transport> MakeLibraryTransport(Library library, Store& store,
                                                const LibraryPlace& place,
                                                Transport& exact) {
  const auto group = std::make_shared<LibraryGroup>();
  try {
    const bool is_connected =
        RunWithDeadline(place.timeout, [=, keys = store.holder().store] {
          *group = MakeGroup(library, keys, place);
        });
    if (is_connected) {
      return std::make_unique<LibraryTransport>(library, std::move(*group),
                                                place, exact);
    }
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception& e) {
    throw LinkError(LinkError::Kind::kLost, LinkError::kSomePeer, e.what());
  }
  throw LinkError(LinkError::Kind::kTimeout, LinkError::kSomePeer,
                  "the library's group was not connected in time");
}

}  // namespace collectives
