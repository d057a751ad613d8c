// What would help a plan that does not fit.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "trainsys/budget/plan.h"

namespace trainsys {
namespace {

struct Change {
  std::string flag;
  std::function<void(PlanRequest&)> apply;
};

Change ZeroStage(int stage) {
  return {fmt::format("--zero {}", stage),
          [stage](PlanRequest& r) { r.states.zero_stage = stage; }};
}

Change Recompute(const std::string& policy) {
  return {"--recompute " + policy,
          [policy](PlanRequest& r) { r.recompute = policy; }};
}

Change Batch(int64_t rows) {
  return {fmt::format("--batch {}", rows),
          [rows](PlanRequest& r) { r.rows = rows; }};
}

Change Ranks(int ranks) {
  return {fmt::format("--ranks {}", ranks),
          [ranks](PlanRequest& r) { r.states.ranks = ranks; }};
}

std::vector<Change> ChangesTo(const MemoryPlan& plan) {
  const PlanRequest& now = plan.request;
  std::vector<Change> changes;
  for (int stage = now.states.zero_stage + 1; stage <= 3; ++stage) {
    changes.push_back(ZeroStage(stage));
  }
  changes.push_back(Recompute("selective"));
  changes.push_back(Recompute("full"));
  changes.push_back({"--attention flash", [](PlanRequest& r) {
                       r.attention = AttentionKernel::kFlash;
                     }});
  if (now.rows > 1) {
    const int64_t fitting = LargestBatch(plan);
    changes.push_back(
        Batch(fitting > 0 ? std::min(fitting, now.rows - 1) : now.rows / 2));
  }
  if (now.states.zero_stage > 0 && now.states.ranks <= kMaxPlannedRanks / 2) {
    changes.push_back(Ranks(2 * now.states.ranks));
  }
  return changes;
}

// Nothing, if it would not need less.
std::optional<Remedy> Try(const MemoryPlan& plan,
                          const std::vector<Change>& changes) {
  PlanRequest request = plan.request;
  Remedy remedy;
  for (const Change& change : changes) {
    change.apply(request);
    remedy.change += (remedy.change.empty() ? "" : " ") + change.flag;
  }
  const MemoryPlan changed = PlanMemory(request);
  if (changed.Total() >= plan.Total()) return std::nullopt;
  remedy.total_bytes = changed.Total();
  remedy.fits = changed.Fits();
  return remedy;
}

// A higher stage and full recomputation, and as many rows as then fit.
std::optional<Remedy> TryWithStage(const MemoryPlan& plan, int stage) {
  std::vector<Change> changes;
  if (stage != plan.request.states.zero_stage) {
    changes.push_back(ZeroStage(stage));
  }
  if (plan.request.recompute != "full") changes.push_back(Recompute("full"));
  PlanRequest request = plan.request;
  for (const Change& change : changes) change.apply(request);
  const int64_t rows = std::max<int64_t>(1, LargestBatch(PlanMemory(request)));
  if (rows < request.rows) changes.push_back(Batch(rows));
  return Try(plan, changes);
}

// The first stage with which it fits; or else what needs the least.
std::optional<Remedy> TryTogether(const MemoryPlan& plan) {
  std::optional<Remedy> best;
  for (int stage = plan.request.states.zero_stage; stage <= 3; ++stage) {
    const auto remedy = TryWithStage(plan, stage);
    if (!remedy) continue;
    if (!best || remedy->total_bytes < best->total_bytes) best = remedy;
    if (remedy->fits) return remedy;
  }
  return best;
}

}  // namespace

std::vector<Remedy> Remedies(const MemoryPlan& plan) {
  std::vector<Remedy> remedies;
  for (const Change& change : ChangesTo(plan)) {
    if (auto remedy = Try(plan, {change})) remedies.push_back(*remedy);
  }
  std::stable_sort(remedies.begin(), remedies.end(),
                   [](const Remedy& a, const Remedy& b) {
                     return a.total_bytes < b.total_bytes;
                   });
  const bool one_fits =
      std::any_of(remedies.begin(), remedies.end(),
                  [](const Remedy& remedy) { return remedy.fits; });
  if (!one_fits) {
    const auto together = TryTogether(plan);
    const bool is_new =
        together &&
        std::none_of(remedies.begin(), remedies.end(), [&](const Remedy& r) {
          return r.change == together->change;
        });
    if (is_new) remedies.push_back(*together);
  }
  return remedies;
}

}  // namespace trainsys
