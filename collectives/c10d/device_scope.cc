#include "collectives/c10d/device_scope.h"

#include <string>

#include "collectives/buffer.h"
#include "collectives/errors.h"

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace collectives {

#ifdef USE_C10D_NCCL

DeviceMark::DeviceMark(int device) {
  if (device == kHostMemory) return;
  auto event = std::make_shared<at::cuda::CUDAEvent>();
  event->record(
      at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)));
  event_ = std::move(event);
}

struct DeviceScope::Guard {
  explicit Guard(int device)
      : stream(c10::cuda::getStreamFromPool(
            /*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device))) {}
  c10::cuda::CUDAStreamGuard stream;
};

DeviceScope::DeviceScope(int device, const DeviceMark& mark) {
  if (device == kHostMemory) return;
  guard_ = std::make_unique<Guard>(device);
  static_cast<at::cuda::CUDAEvent*>(mark.event_.get())
      ->block(guard_->stream.current_stream());
}

void AwaitDevice(int device) {
  if (device == kHostMemory) return;
  at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device))
      .synchronize();
}

#else

namespace {

void RefuseDevice(int device) {
  if (device == kHostMemory) return;
  throw InvalidArgument("device " + std::to_string(device) +
                        ", but this libtorch was built without accelerators");
}

}  // namespace

DeviceMark::DeviceMark(int device) { RefuseDevice(device); }

struct DeviceScope::Guard {};

DeviceScope::DeviceScope(int device, const DeviceMark&) {
  RefuseDevice(device);
}

void AwaitDevice(int device) { RefuseDevice(device); }

#endif

DeviceScope::~DeviceScope() = default;

}  // namespace collectives
