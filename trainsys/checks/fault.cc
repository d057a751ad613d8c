#include <array>
#include <utility>

#include "trainsys/checks/checks.h"

namespace trainsys {
namespace {

constexpr std::array<std::pair<std::string_view, Fault>, 5> kFaults{{
    {"no-average", Fault::kNoAverage},
    {"missing-all-gather", Fault::kMissingAllGather},
    {"launch-at-end", Fault::kLaunchAtEnd},
    {"params-saved", Fault::kParamsSaved},
    {"wait-in-hook", Fault::kWaitInHook},
}};

}  // namespace

std::optional<Fault> FaultNamed(std::string_view name) {
  for (const auto& [known, fault] : kFaults) {
    if (known == name) return fault;
  }
  return std::nullopt;
}

std::vector<std::string> FaultNames() {
  std::vector<std::string> names;
  for (const auto& fault : kFaults) names.emplace_back(fault.first);
  return names;
}

}  // namespace trainsys
