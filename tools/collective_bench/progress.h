// How far a long benchmark is, for a person who waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainsys {

// On stderr, from two seconds after the start on: on a terminal one line that
// is redrawn, else one line for each part. Threads: one at a time.
class BenchProgress {
 public:
  BenchProgress();

  void Show(const std::string& part, size_t done, size_t all);
  // Takes the redrawn line away, before other output.
  void Clear();

 private:
  const bool is_terminal_;
  const int64_t began_ns_;
  int64_t shown_ns_ = 0;
  std::string shown_part_;
  bool is_drawn_ = false;
};

}  // namespace trainsys
