// How a measurement tells how far it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trainsys {

// `done` of `all` parts, which take about as long each; `detail` says which one
// is next, or is empty. May be empty itself. Called where rank 0 runs, by one
// thread at a time.
using MeasureProgress =
    std::function<void(int64_t done, int64_t all, const std::string& detail)>;

}  // namespace trainsys
