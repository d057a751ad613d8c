// One rank's training step in a bucket sweep, with its marks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/measure/step_times.h"
#include "trainsys/train/job.h"

namespace trainsys {

// How the gradients go; all the rest is the same.
struct SweepVariant {
  int64_t bucket_bytes = BucketLimits::kMost;  // of every bucket, the first too
  bool is_averaged = true;  // else each rank keeps its own gradients
};

// BucketedDDP, ZeROOptimizer and recomputation together.
// Threads: the rank's own. Lifetime: what it is made from outlives it.
class SweepStep {
 public:
  // A collective.
  SweepStep(const JobOptions& options, const SweepVariant& variant,
            const ByteDataset& data, collectives::Communicator& comm);
  ~SweepStep();

  // A collective.
  StepMarks Run(int64_t step);

  // As of the last step.
  const std::vector<Bucket>& plan() const;
  int64_t ElemBytes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trainsys
