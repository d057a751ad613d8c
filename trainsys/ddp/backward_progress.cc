#include "trainsys/ddp/backward_progress.h"

namespace trainsys {

void BackwardProgress::SetPlan(std::span<const Bucket> plan) {
  bucket_of_.assign(is_ready_.size(), 0);
  bucket_sizes_.clear();
  for (size_t b = 0; b < plan.size(); ++b) {
    bucket_sizes_.push_back(plan[b].parameters.size());
    for (size_t p : plan[b].parameters) bucket_of_[p] = b;
  }
  num_missing_ = bucket_sizes_;
}

void BackwardProgress::Restart() {
  is_used_.assign(is_used_.size(), false);
  is_ready_.assign(is_ready_.size(), false);
  order_.clear();
  num_missing_ = bucket_sizes_;
}

void BackwardProgress::MarkReady(size_t parameter, int64_t now_ns) {
  is_ready_[parameter] = true;
  ready_ns_[parameter] = now_ns;
  order_.push_back(parameter);
  --num_missing_[bucket_of_[parameter]];
}

std::vector<size_t> CompleteOrder(std::vector<size_t> seen, size_t parameters) {
  std::vector<bool> is_seen(parameters);
  for (size_t p : seen) is_seen[p] = true;
  for (size_t p = parameters; p-- > 0;) {
    if (!is_seen[p]) seen.push_back(p);
  }
  return seen;
}

}  // namespace trainsys
