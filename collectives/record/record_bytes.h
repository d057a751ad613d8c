// A rank's records as bytes, to be sent to another process.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/record/recorder.h"

namespace collectives {

// One CBOR array of numbers and texts, the format's version first; the same
// bytes on every machine. Units: some 100 bytes a record.
std::vector<std::byte> ToBytes(const Recorder& recorder);

// What ToBytes was given: the same Parts().
// Errors: Error for bytes that are cut short, of another version, or anything
// else; whatever they are, nothing is read beyond them and memory stays in
// proportion to their number.
Recorder FromBytes(std::span<const std::byte> bytes);

}  // namespace collectives
