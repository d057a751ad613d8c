// A recorded step as a picture. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/record/recorder.h"

namespace trainsys {

// A file of its own, SVG, for light and dark: what DrawStep() draws. A row for
// each phase and each collective of the step on this rank, on one time axis:
// hollow where it waits for the other ranks to post, filled until all data had
// moved, a bar across where the rank began to wait for it. Each row says its
// times to a pointer that rests on it. More than 64 collectives are cut short,
// which the last row says.
// Errors: Error if the step was not recorded.
std::string PictureOfStep(const collectives::Recorder& recorder, int64_t step);

}  // namespace trainsys
