#include "trainsys/platform/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace trainsys {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

int64_t KernelEstimate() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(meminfo, unit);
  }
  return kUnknown;
}

// "max", or a missing file, leaves it unknown.
int64_t NumberIn(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnknown;
}

int64_t ControlGroupRest() {
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max");
  const int64_t used = NumberIn("/sys/fs/cgroup/memory.current");
  return limit == kUnknown || used == kUnknown ? kUnknown : limit - used;
}

}  // namespace

int64_t AvailableMemoryBytes() {
  return std::min(KernelEstimate(), ControlGroupRest());
}

}  // namespace trainsys
