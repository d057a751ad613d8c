#include "trainsys/platform/memory.h"

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

}  // namespace

int64_t AvailableMemoryBytes() { return KernelEstimate(); }

}  // namespace trainsys
