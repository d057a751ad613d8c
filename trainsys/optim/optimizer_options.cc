#include "trainsys/optim/optimizer_options.h"

#include <fmt/format.h>

#include <cmath>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

const char* Name(const AdamWOptions&) { return "AdamW"; }
const char* Name(const AdamOptions&) { return "Adam"; }
const char* Name(const SGDOptions&) { return "SGD"; }

void CheckFinite(const std::string& what, double value) {
  if (std::isfinite(value)) return;
  throw InvalidArgument(
      fmt::format("{} is {}; expected a finite number", what, value));
}

void CheckNotNegative(const std::string& what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw InvalidArgument(fmt::format(
      "{} is {}; expected a finite number of at least 0", what, value));
}

void CheckBeta(const std::string& what, double value) {
  if (value >= 0 && value < 1) return;  // false for NaN
  throw InvalidArgument(fmt::format(
      "{} is {}; expected at least 0 and less than 1", what, value));
}

// AdamW's or Adam's.
template <typename Options>
void Check(const Options& o) {
  const std::string name = Name(o);
  CheckNotNegative(name + ": lr", o.lr);
  CheckNotNegative(name + ": eps", o.eps);
  CheckNotNegative(name + ": weight_decay", o.weight_decay);
  CheckBeta(name + ": beta1", o.beta1);
  CheckBeta(name + ": beta2", o.beta2);
}

void Check(const SGDOptions& o) {
  CheckNotNegative("SGD: lr", o.lr);
  CheckNotNegative("SGD: momentum", o.momentum);
  CheckFinite("SGD: dampening", o.dampening);
  CheckNotNegative("SGD: weight_decay", o.weight_decay);
  if (!o.nesterov || (o.momentum > 0 && o.dampening == 0)) return;
  throw InvalidArgument(fmt::format(
      "SGD: nesterov with momentum {} and dampening {}; expected momentum "
      "above 0 and no dampening",
      o.momentum, o.dampening));
}

}  // namespace

void Validate(const OptimizerOptions& options) {
  std::visit([](const auto& o) { Check(o); }, options);
}

int NumMoments(const OptimizerOptions& options) {
  const auto* sgd = std::get_if<SGDOptions>(&options);
  if (sgd == nullptr) return 2;
  return sgd->momentum > 0 ? 1 : 0;
}

double LrOf(const OptimizerOptions& options) {
  return std::visit([](const auto& o) { return o.lr; }, options);
}

void SetLr(OptimizerOptions& options, double lr) {
  std::visit([lr](auto& o) { o.lr = lr; }, options);
}

std::string NameOf(const OptimizerOptions& options) {
  return std::visit([](const auto& o) { return std::string(Name(o)); },
                    options);
}

}  // namespace trainsys
