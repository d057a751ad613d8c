// A recorded step as text. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/record/recorder.h"

namespace trainsys {

// One line for each phase and each collective of the step on this rank, on one
// time axis of `width` characters; with the usual one 80 in all:
//                                           posted matched   done
//   backward  |  ====================|        12.3           40.1
//   bucket 0  |       ..####         |        18.2    19.0   21.0 448 KiB
// '=' the phase, '.' waiting for the other ranks to post, '#' until all data
// had moved, '|' where the rank began to wait for it.
// Errors: Error if the step was not recorded.
std::string DrawStep(const collectives::Recorder& recorder, int64_t step,
                     int width = 30);

}  // namespace trainsys
