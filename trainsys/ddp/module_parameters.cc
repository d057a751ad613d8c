#include "trainsys/ddp/module_parameters.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <set>

#include "collectives/errors.h"
#include "trainsys/memory/ledger.h"

namespace trainsys {

using collectives::InvalidArgument;

namespace {

bool MakesSparseGradients(const torch::nn::Module& layer) {
  const auto* const embedding =
      dynamic_cast<const torch::nn::EmbeddingImpl*>(&layer);
  const auto* const bag =
      dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&layer);
  return (embedding && embedding->options.sparse()) ||
         (bag && bag->options.sparse());
}

}  // namespace

NamedTensors ParametersOf(const torch::nn::Module& module) {
  NamedTensors parameters;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    parameters.names.push_back(item.key());
    parameters.tensors.push_back(item.value());
  }
  return parameters;
}

NamedTensors TrainedOf(const NamedTensors& all) {
  NamedTensors trained;
  for (size_t p = 0; p < all.tensors.size(); ++p) {
    if (!all.tensors[p].requires_grad()) continue;
    trained.names.push_back(all.names[p]);
    trained.tensors.push_back(all.tensors[p]);
  }
  if (trained.tensors.empty()) {
    throw InvalidArgument(
        "the module has no parameter that requires a gradient, expected one "
        "at least");
  }
  return trained;
}

void AttributeMemoryOf(const torch::nn::Module& module) {
  for (const at::Tensor& p : module.parameters()) {
    Attribute(p, MemoryCategory::kParameter);
  }
  for (const at::Tensor& b : module.buffers()) {
    Attribute(b, MemoryCategory::kOther);
  }
}

std::vector<std::string> SparseParametersOf(const torch::nn::Module& module) {
  std::vector<std::string> names;
  if (MakesSparseGradients(module)) names.push_back("weight");
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (!MakesSparseGradients(*item.value())) continue;
    names.push_back(item.key() + ".weight");
  }
  return names;
}

void RefuseSparseGradients(const torch::nn::Module& module) {
  const std::vector<std::string> names = SparseParametersOf(module);
  if (names.empty()) return;
  throw InvalidArgument("parameter '" + names[0] +
                        "' gets sparse gradients, expected dense ones: make "
                        "its layer with sparse(false)");
}

}  // namespace trainsys
