// A file that a tool writes at its end.
#pragma once

#include <string>

namespace trainsys {

// Relative paths mean the caller's folder, also under `bazel run`.
std::string FromCallersFolder(const std::string& path);

// Checked before the run, so that a wrong path costs no training; at the end
// written to a neighbour and renamed, so that no half a file is ever there, and
// whoever is ended before leaves nothing.
class OutputFile {
 public:
  // `flag`: what asked for it, for messages. An empty path: no file.
  // Errors: InvalidArgument for a path that cannot be written.
  OutputFile(const std::string& flag, const std::string& path);

  bool is_wanted() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  // Errors: Error; nothing is left of it then.
  void Write(const std::string& text) const;

 private:
  std::string Unfinished() const { return path_ + ".unfinished"; }

  std::string path_;
};

}  // namespace trainsys
