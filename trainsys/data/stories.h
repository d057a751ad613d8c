#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainsys {

// Small English stories for training when no file is given: a few friends, the
// places they go, something lost or broken, help, an end. Names and places
// recur within a story and across stories, so that a language model has
// something to learn at every distance.
//
// Result: exactly `bytes` bytes of ASCII text, the same on every platform for
// the same seed; the last story is cut where the bytes end.
// Cost: about 3 ms a megabyte.
// Threads: any thread.
std::string MakeStories(uint64_t seed, size_t bytes);

}  // namespace trainsys
