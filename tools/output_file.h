// A file that a tool writes at its end.
#pragma once

#include <fstream>
#include <string>

namespace trainsys {

// Relative paths mean the caller's folder, also under `bazel run`.
std::string FromCallersFolder(const std::string& path);

// Checked before the run, so that a wrong path costs no training; written to a
// neighbour and renamed, so that no half a file is ever there.
class OutputFile {
 public:
  // `flag`: what asked for it, for messages. An empty path: no file.
  // Errors: InvalidArgument for a path that cannot be written.
  OutputFile(const std::string& flag, const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Call: once. Errors: Error.
  void Write(const std::string& text);

 private:
  std::string Unfinished() const { return path_ + ".unfinished"; }

  std::string path_;
  std::ofstream file_;
};

}  // namespace trainsys
