// What a training step asks of an optimizer.
#pragma once

#include <cstdint>

namespace trainsys {

// Threads: the rank's own thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Sets every defined gradient to zero, in place.
  virtual void ZeroGrad() = 0;
  // Updates the parameters from their gradients.
  virtual void Step() = 0;
  // Bytes of optimizer state this rank holds, from live storages.
  virtual int64_t StateBytes() const = 0;
};

}  // namespace trainsys
