// Figures in the units that people use.
#pragma once

#include <cstdint>
#include <string>

namespace trainsys {

// Three digits or more, at most eight characters up to 1 TiB: "0 B", "512 B",
// "7.88 MiB", "1023 KiB".
std::string BytesText(int64_t bytes);

}  // namespace trainsys
