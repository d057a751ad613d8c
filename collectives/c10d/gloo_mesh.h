// A Mesh over libtorch's process group for Gloo.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/c10d/mesh.h"
#include "collectives/c10d/store.h"

namespace collectives {

// Connects this rank with all others, which do the same. The process ignores
// SIGPIPE from then on, unless it has a handler for it.
// `host`: the address by which this rank's host is reached by the others.
// Blocks: until all ranks have come. Errors: TimeoutError, which names those
// that have not; Error.
std::unique_ptr<Mesh> ConnectGlooMesh(Store& store, int rank, int ranks,
                                      const std::string& host,
                                      std::chrono::nanoseconds timeout);

}  // namespace collectives
