// Order between what a rank's thread has enqueued on its accelerator and what
// its channels' threads do there. Nothing where the data is in host memory.
#pragma once

#include <memory>

namespace collectives {

// What the thread that makes it has enqueued so far.
// Errors: InvalidArgument for a device where libtorch was built without one.
class DeviceMark {
 public:
  explicit DeviceMark(int device);

 private:
  friend class DeviceScope;
  std::shared_ptr<void> event_;  // none for host memory
};

// As long as it lives, what this thread enqueues goes to a stream of its own,
// and runs after the mark but beside what is enqueued later.
class DeviceScope {
 public:
  DeviceScope(int device, const DeviceMark& mark);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Blocks until the device has done all that this thread has enqueued.
void AwaitDevice(int device);

}  // namespace collectives
