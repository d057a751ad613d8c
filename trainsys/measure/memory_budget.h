// What a job's ranks hold, by formula and by ledger: for every stage, with and
// without recomputation.
#pragma once

#include <vector>

#include "collectives/run_ranks.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/measure/findings.h"
#include "trainsys/measure/progress.h"
#include "trainsys/train/job.h"

namespace trainsys {

// Short jobs like `base`, one for each of `ranks`, each stage and recomputation
// none and full. Where ranks are processes, every process makes the same call.
// Result: filled where rank 0 runs; the timelines are those of the job with the
// last of `ranks`.
// Blocks: about a second a job of the default model.
// Errors: Error where jobs of as many ranks end with other parameters than one
// another; Interrupted between two jobs; those of RunJob.
MemoryFinding MeasureMemory(collectives::RankRunner& runner,
                            const JobOptions& base, const ByteDataset& data,
                            const std::vector<int>& ranks,
                            const MeasureProgress& progress);

}  // namespace trainsys
