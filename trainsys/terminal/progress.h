// How far something long is, for a person who waits.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace trainsys {

// From two seconds after the start on: on a terminal one line that is redrawn,
// at each new `what` and else ten times a second at most, cut to its width, and
// gone at the end; else one plain line for about every tenth of each `what`,
// and for its last part. Adds what is left:
// "memory 7/18 | 4 ranks, ZeRO-2 | 12 s left".
//
// Threads: one at a time.
class Progress {
 public:
  // `stream`: where to draw. `quiet_ns`: how long it says nothing at first.
  explicit Progress(std::FILE* stream = stderr,
                    int64_t quiet_ns = 2'000'000'000);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `all` parts of `what` are done; `detail` may be empty. The time
  // left is told from the shares of one `what`.
  void Show(const std::string& what, int64_t done, int64_t all,
            const std::string& detail = "");
  // Takes the redrawn line away, before other output.
  void Clear();

 private:
  void Draw(const std::string& line);
  std::string Line(int64_t done, int64_t all, const std::string& detail) const;

  std::FILE* const stream_;
  const bool is_terminal_;
  const int64_t began_ns_;
  const int64_t quiet_ns_;
  int64_t seen_ns_;       // of the last Show
  int64_t shown_ns_ = 0;  // of the last line
  std::string what_;
  int64_t what_began_ns_ = 0;
  int64_t shown_tenth_ = -1;
  bool is_drawn_ = false;
};

}  // namespace trainsys
