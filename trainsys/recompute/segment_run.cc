#include "trainsys/recompute/segment_run.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/errors.h"
#include "trainsys/recompute/keep_in_segment.h"

namespace trainsys {
namespace {

// Written and read by its own thread only; null outside all segments.
thread_local SegmentRun* innermost_run = nullptr;

}  // namespace

SegmentRun::SegmentRun(Segment& segment, const SavedTensorHookScope& hooks)
    : segment_(&segment),
      hooks_(hooks),
      options_(segment.options()),
      outer_(std::exchange(innermost_run, this)) {}

SegmentRun::SegmentRun(std::vector<KeptResult> results,
                       const SavedTensorHookScope& hooks,
                       const CheckpointOptions& options)
    : hooks_(hooks),
      results_(std::move(results)),
      options_(options),
      outer_(std::exchange(innermost_run, this)) {}

SegmentRun::~SegmentRun() { innermost_run = outer_; }

void SegmentRun::Keep(const KeptResult& result) {
  const OutsideHookScope outside(hooks_);
  segment_->Keep(result);
}

KeptResult SegmentRun::Next() {
  if (next_ == results_.size()) {
    throw collectives::Error(fmt::format(
        "{}: recomputation calls KeepInSegment more often than the {} times "
        "of the forward; the function must do the same each time",
        NameOf(options_), results_.size()));
  }
  KeptResult result = std::move(results_[next_++]);
  result.draws.Restore();
  return result;
}

void SegmentRun::Finish() const {
  if (next_ == results_.size()) return;
  throw collectives::Error(fmt::format(
      "{}: recomputation called KeepInSegment {} times, the forward {} times; "
      "the function must do the same each time",
      NameOf(options_), next_, results_.size()));
}

OutsideSegments::OutsideSegments()
    : run_(std::exchange(innermost_run, nullptr)) {
  const SegmentRun* outermost = run_;
  while (outermost != nullptr && outermost->outer() != nullptr) {
    outermost = outermost->outer();
  }
  if (outermost != nullptr) hooks_.emplace(outermost->hooks());
}

OutsideSegments::~OutsideSegments() { innermost_run = run_; }

namespace {

KeptResult RunOutside(const std::function<ResultParts()>& fn) {
  KeptResult result;
  {
    const OutsideSegments outside;
    const DrawScope draws(result.draws);
    result.parts = fn();
  }
  result.draws.Renew();
  return result;
}

}  // namespace

bool IsInSegment() { return innermost_run != nullptr; }

// A second run has the result; first runs inside it keep it for theirs. Where
// all are first runs, the function runs outside all of them.
ResultParts KeepParts(const std::function<ResultParts()>& fn) {
  SegmentRun* run = innermost_run;
  while (run != nullptr && run->IsFirst()) run = run->outer();
  KeptResult result = run == nullptr ? RunOutside(fn) : run->Next();
  for (SegmentRun* r = innermost_run; r != run; r = r->outer()) r->Keep(result);
  return std::move(result.parts);
}

}  // namespace trainsys
