// Puts a rank's name in front of each line that it prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainsys {

// Turns a stream that arrives in arbitrary pieces into whole lines.
//
//     LineForwarder lines("[rank2]: ");
//     lines.Feed("loss 2.");    // ""
//     lines.Feed("5\nstep ");   // "[rank2]: loss 2.5\n"
//     lines.Finish();           // "[rank2]: step \n"
//
// Threads: one at a time.
class LineForwarder {
 public:
  // A longer line is cut into lines of this many bytes, so that a stream
  // without line ends needs no more memory than this.
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  explicit LineForwarder(std::string prefix) : prefix_(std::move(prefix)) {}

  // Result: the lines that `bytes` completes, each with the prefix in front and
  // a line end behind it; empty where it completes none.
  std::string Feed(std::string_view bytes);

  // Result: the unfinished line, finished; empty where there is none.
  std::string Finish();

 private:
  void EndLine(std::string& lines);

  std::string prefix_;
  std::string partial_;  // without a line end, at most kMaxLineBytes
};

}  // namespace trainsys
