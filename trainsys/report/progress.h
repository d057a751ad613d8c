// A run's progress, for a person who watches.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace trainsys {

// On a terminal one line that is redrawn, ten times a second at most; else one
// plain line for about every tenth of the run. Threads: one at a time.
class Progress {
 public:
  // `stream`: where to print, stderr by default.
  Progress(int64_t num_steps, int64_t tokens_per_step,
           std::FILE* stream = stderr);
  // Ends the redrawn line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `step`: counted from 0.
  void Show(int64_t step, double loss);

 private:
  std::string Line(int64_t step, double loss, double seconds) const;

  const int64_t num_steps_;
  const int64_t tokens_per_step_;
  std::FILE* const stream_;
  const bool is_terminal_;
  const int64_t began_ns_;
  int64_t shown_ns_ = 0;
};

}  // namespace trainsys
