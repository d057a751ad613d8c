// Errors that say in which step they came.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/errors.h"

namespace trainsys {

inline std::string StepText(int64_t step) {
  return "step " + std::to_string(step) + ": ";
}

// Result: fn()'s. An error of a collective comes out as itself, with the step.
template <typename Fn>
auto InStep(int64_t step, const Fn& fn) {
  try {
    return fn();
  } catch (const collectives::PeerFailed& e) {
    throw collectives::PeerFailed(e.rank(), StepText(step) + e.what());
  } catch (const collectives::TimeoutError& e) {
    throw collectives::TimeoutError(StepText(step) + e.what());
  } catch (const collectives::MismatchError& e) {
    throw collectives::MismatchError(
        StepText(step) + e.what() +
        "; expected the same steps and the same parameters "
        "to train on every rank");
  }
}

}  // namespace trainsys
