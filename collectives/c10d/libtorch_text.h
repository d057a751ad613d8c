// What c10d's files say to libtorch, and make of what it says.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace collectives {

// libtorch's messages go on with a stack trace.
inline std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// At least 1, for 0 means "for ever"; the longest times do not overflow.
inline std::chrono::milliseconds AsMilliseconds(std::chrono::nanoseconds time) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 30);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::clamp<std::chrono::nanoseconds>(time, std::chrono::milliseconds(1),
                                           kLongest));
}

}  // namespace collectives
