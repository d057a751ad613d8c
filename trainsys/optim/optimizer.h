// What a training step asks of an optimizer.
#pragma once

#include <cstdint>

namespace trainsys {

// Threads: the rank's own thread. Where parameters or gradients are sharded,
// GradNorm and the steps are collectives: all ranks call them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Forgets the gradients: they are zero, or undefined.
  virtual void ZeroGrad() = 0;
  // Updates the parameters from their gradients times `gradient_scale`. One
  // without a gradient stays as it is.
  virtual void StepScaled(double gradient_scale) = 0;
  // The 2-norm of all gradients together: the same number on all ranks, for
  // every cut of parameters and gradients. Not finite if any of them is not.
  virtual double GradNorm() = 0;
  // Bytes of optimizer state this rank holds, from live storages.
  virtual int64_t StateBytes() const = 0;

  void Step() { StepScaled(1); }

 protected:
  Optimizer() = default;
};

}  // namespace trainsys
