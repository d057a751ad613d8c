#include "collectives/c10d/library_transport.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

std::chrono::milliseconds AsMilliseconds(std::chrono::nanoseconds time) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 30);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::clamp<std::chrono::nanoseconds>(time, std::chrono::milliseconds(1),
                                           kLongest));
}

LibraryGroup MakeGloo(const c10::intrusive_ptr<c10d::Store>& store,
                      const LibraryPlace& place) {
  auto options =
      c10d::ProcessGroupGloo::Options::create(AsMilliseconds(place.timeout));
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(place.host));
  options->threads = 1;  // one call at a time
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank,
                                                     place.ranks, options);
}

LibraryGroup MakeGroup(Library library,
                       const c10::intrusive_ptr<c10d::Store>& store,
                       const LibraryPlace& place) {
  if (library == Library::kGloo) return MakeGloo(store, place);
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
  LibraryTransport(Library library, LibraryGroup group, int ranks,
                   Transport& exact)
      : has_all_operations_(library == Library::kNccl),
        group_(std::move(group)),
        ranks_(ranks),
        exact_(exact) {}

  void Run(const Call& call) override {
    if (!IsTheLibrarys(call)) return exact_.Run(call);
    try {
      RunOnLibrary(call);
    } catch (const std::exception& e) {
      const std::string what = e.what();
      throw LinkError(LinkError::Kind::kLost, LinkError::kSomePeer,
                      what.substr(0, what.find('\n')));
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
  static void Await(const LibraryWork& work) {
    work->wait();
    while (!work->isCompleted()) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const bool has_all_operations_;
  LibraryGroup group_;
  const int ranks_;
  Transport& exact_;
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
                                                place.ranks, exact);
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
