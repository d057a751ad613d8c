// Which segments this thread runs just now. Not for use outside this folder.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "trainsys/autograd/saved_tensor_hooks.h"
#include "trainsys/recompute/segment.h"

namespace trainsys {

// One run of a segment, first or second, for as long as it lives. Those of a
// thread form a stack: a nested segment's first run stands in the enclosing
// one's first or second run.
class SegmentRun {
 public:
  // A first run, which keeps results.
  SegmentRun(Segment& segment, const SavedTensorHookScope& hooks);
  // A second run, which is given what the first one kept.
  SegmentRun(std::vector<KeptResult> results, const SavedTensorHookScope& hooks,
             const CheckpointOptions& options);
  ~SegmentRun();
  SegmentRun(const SegmentRun&) = delete;
  SegmentRun& operator=(const SegmentRun&) = delete;

  SegmentRun* outer() const { return outer_; }
  bool IsFirst() const { return segment_ != nullptr; }

  // First runs: keeps the result as the enclosing scopes' saved tensors.
  void Keep(const KeptResult& result);
  // The scope that drops, or takes, what the segment saves.
  const SavedTensorHookScope& hooks() const { return hooks_; }

  // Second runs: the next result, the generators as it left them.
  // Errors: collectives::Error where the first run kept no more.
  KeptResult Next();
  // Second runs. Errors: collectives::Error where results are left.
  void Finish() const;

 private:
  Segment* const segment_ = nullptr;
  const SavedTensorHookScope& hooks_;
  std::vector<KeptResult> results_;
  size_t next_ = 0;
  const CheckpointOptions& options_;
  SegmentRun* const outer_;
};

// While it lives, the thread is in no segment, and saves as outside all that it
// was in.
class OutsideSegments {
 public:
  OutsideSegments();
  ~OutsideSegments();
  OutsideSegments(const OutsideSegments&) = delete;
  OutsideSegments& operator=(const OutsideSegments&) = delete;

 private:
  std::optional<OutsideHookScope> hooks_;
  SegmentRun* const run_;
};

}  // namespace trainsys
