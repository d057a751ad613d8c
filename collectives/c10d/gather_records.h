// The records of all processes, at rank 0.
#pragma once

#include <chrono>
#include <vector>

#include "collectives/c10d/mesh.h"
#include "collectives/record/recorder.h"

namespace collectives {

// A collective, when no channel uses the mesh any more. Rank 0 compares each
// rank's clock with its own, and shifts its records where the clocks differ by
// more than can be told: those of processes on one host do not.
// Result: on rank 0 the recorders of all ranks, whose clock() tells the offset
// and how far it may be off; else nothing. Errors: LinkError.
std::vector<Recorder> GatherRecords(Mesh& mesh, const Recorder& mine,
                                    std::chrono::nanoseconds timeout);

}  // namespace collectives
