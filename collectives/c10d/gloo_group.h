// libtorch's process group over Gloo; for collectives/c10d alone.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "collectives/c10d/libtorch_text.h"

namespace collectives {

// Blocks until all ranks have come. Errors: libtorch's.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo> MakeGlooGroup(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
    const std::string& host, std::chrono::nanoseconds timeout) {
  auto options =
      c10d::ProcessGroupGloo::Options::create(AsMilliseconds(timeout));
  // The default would look up this host's name.
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(host));
  options->threads = 1;  // one collective of the library at a time, or none
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks,
                                                     options);
}

}  // namespace collectives
