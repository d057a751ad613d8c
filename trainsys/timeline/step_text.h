// A recorded step as text. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/record/recorder.h"

namespace trainsys {

// One line for each phase and each collective of the step on this rank, on one
// time axis of `width` characters:
//   backward      =========================          12.3 - 40.1 ms
//   bucket 0           ..####                        posted 18.2, done 21.0 ms
// '=' the phase, '.' waiting for the other ranks to post, '#' until all data
// had moved, '|' where the rank began to wait for it.
// Errors: Error if the step was not recorded.
std::string DrawStep(const collectives::Recorder& recorder, int64_t step,
                     int width = 60);

}  // namespace trainsys
