// Which optimizer, and with which numbers. Values, no tensors.
#pragma once

#include <string>
#include <variant>

namespace trainsys {

// With decoupled decay: the parameter shrinks, the gradient does not know.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// weight_decay * parameter is added to the gradient.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

enum class Decay {
  kInGradient,  // weight_decay * parameter is added to the gradient
  kDecoupled,   // the parameter is multiplied by 1 - lr * weight_decay
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;
  Decay decay = Decay::kInGradient;
};

using OptimizerOptions = std::variant<AdamWOptions, AdamOptions, SGDOptions>;

// Errors: InvalidArgument, with what is wrong and what was expected, unless all
// numbers are finite; lr, eps, momentum and weight_decay are not negative; both
// betas lie in [0, 1); and nesterov comes with momentum and without dampening.
void Validate(const OptimizerOptions& options);

// How many numbers an element has beside the parameter: 2 for AdamW and Adam, 1
// for SGD with momentum, 0 for SGD without.
int NumMoments(const OptimizerOptions& options);

double LrOf(const OptimizerOptions& options);
void SetLr(OptimizerOptions& options, double lr);

// "AdamW", "Adam" or "SGD".
std::string NameOf(const OptimizerOptions& options);

}  // namespace trainsys
