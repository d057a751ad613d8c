// Moves data with the collectives of a library that libtorch has.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/c10d/options.h"
#include "collectives/c10d/store.h"
#include "collectives/c10d/transport.h"

namespace collectives {

// Whether the libtorch that this was built with has it.
bool HasLibrary(Library library);

struct LibraryPlace {
  int rank = 0;
  int ranks = 1;
  std::string host;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

// `exact`: runs the operations that are not the library's; outlives it.
// `store`: keys of this transport alone.
// Blocks: until all ranks have come. Errors: LinkError when they do not;
// InvalidArgument if libtorch lacks the library.
std::unique_ptr<Transport> MakeLibraryTransport(Library library, Store& store,
                                                const LibraryPlace& place,
                                                Transport& exact);

}  // namespace collectives
