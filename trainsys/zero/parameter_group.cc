#include "trainsys/zero/parameter_group.h"

#include <map>
#include <string>

#include "collectives/errors.h"

namespace trainsys {

using collectives::InvalidArgument;

std::vector<at::Tensor> ParametersOf(
    const std::vector<ParameterGroup>& groups) {
  std::vector<at::Tensor> all;
  for (const ParameterGroup& group : groups) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  return all;
}

std::vector<size_t> GroupOfEach(const std::vector<at::Tensor>& parameters,
                                const std::vector<ParameterGroup>& groups) {
  std::map<const at::TensorImpl*, size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& p : groups[g].parameters) {
      if (group_of.emplace(p.unsafeGetTensorImpl(), g).second) continue;
      throw InvalidArgument("a parameter of group " + std::to_string(g) +
                            " is in a group already, expected each one once");
    }
  }
  std::vector<size_t> groups_of;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = group_of.find(parameters[i].unsafeGetTensorImpl());
    if (found == group_of.end()) {
      throw InvalidArgument("parameter " + std::to_string(i) +
                            " is in no group, expected each one in one; leave "
                            "untrained ones out by requires_grad");
    }
    groups_of.push_back(found->second);
    group_of.erase(found);
  }
  if (!group_of.empty()) {
    throw InvalidArgument(
        "group " + std::to_string(group_of.begin()->second) +
        " has a parameter that is not trained, expected those of the model "
        "that require a gradient");
  }
  return groups_of;
}

}  // namespace trainsys
