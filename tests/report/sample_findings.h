// Findings made by hand, for tests.
#pragma once

#include "trainsys/measure/findings.h"

namespace trainsys {

// What a run on two cores might find: memory as budgeted for the default
// model, 1 MiB buckets fastest with 2 ranks, full recomputation cheaper than
// its FLOPs.
Findings SampleFindings();

}  // namespace trainsys
