// What each recomputation policy costs and saves, on one rank.
#pragma once

#include "trainsys/data/byte_dataset.h"
#include "trainsys/measure/findings.h"
#include "trainsys/measure/progress.h"
#include "trainsys/train/job.h"

namespace trainsys {

// Times forward and backward of `base`'s model and batch under the policies
// none, selective, every-4, every-2 and full, in turn, and counts what they
// save. On the calling thread, without collectives: where ranks are processes,
// rank 0's calls it.
// Blocks: about 0.7 s a turn of the default model.
// Errors: InvalidArgument for options that no job can have; Interrupted
// between two turns.
RecomputeFinding MeasureRecompute(const JobOptions& base,
                                  const ByteDataset& data, int turns,
                                  const MeasureProgress& progress);

}  // namespace trainsys
