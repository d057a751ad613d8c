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
      hooks_(&hooks),
      options_(segment.options()),
      outer_(std::exchange(innermost_run, this)) {}

SegmentRun::SegmentRun(std::vector<KeptResult> results,
                       const CheckpointOptions& options)
    : results_(std::move(results)),
      options_(options),
      outer_(std::exchange(innermost_run, this)) {}

SegmentRun::~SegmentRun() { innermost_run = outer_; }

void SegmentRun::Keep(const KeptResult& result) {
  const OutsideHookScope outside(*hooks_);
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

namespace {

// While it lives, the thread is in no segment, and saves as outside
// `outermost`, its outermost run.
class OutsideSegments {
 public:
  explicit OutsideSegments(const SegmentRun& outermost)
      : hooks_(outermost.hooks()),
        run_(std::exchange(innermost_run, nullptr)) {}
  ~OutsideSegments() { innermost_run = run_; }
  OutsideSegments(const OutsideSegments&) = delete;
  OutsideSegments& operator=(const OutsideSegments&) = delete;

 private:
  const OutsideHookScope hooks_;
  SegmentRun* const run_;
};

KeptResult RunOutside(const SegmentRun& outermost,
                      const std::function<ResultParts()>& fn) {
  KeptResult result;
  {
    const OutsideSegments outside(outermost);
    const DrawScope draws(result.draws);
    result.parts = fn();
  }
  result.draws.Renew();
  return result;
}

}  // namespace

bool IsInSegment() { return innermost_run != nullptr; }

// A second run has the result; first runs inside it keep it for theirs. Where
// all are first runs, the outermost is where the function runs for all of them.
ResultParts KeepParts(const std::function<ResultParts()>& fn) {
  SegmentRun* outermost = nullptr;
  SegmentRun* run = innermost_run;
  for (; run != nullptr && run->IsFirst(); run = run->outer()) outermost = run;
  KeptResult result = run == nullptr ? RunOutside(*outermost, fn) : run->Next();
  for (SegmentRun* r = innermost_run; r != run; r = r->outer()) r->Keep(result);
  return std::move(result.parts);
}

}  // namespace trainsys
