// A folder that a tool fills at its end.
#pragma once

#include <string>

namespace trainsys {

// Made if it is not there, with the folders above it. Files that are there
// already stay, but for those of the same names.
class OutputFolder {
 public:
  // `flag`: what asked for it, for messages. Relative: to the caller's folder.
  // Errors: InvalidArgument for a path that is no folder, or that cannot be
  // written into.
  OutputFolder(const std::string& flag, const std::string& path);

  const std::string& path() const { return path_; }

  // `name` may have a folder in it. Written to a neighbour and renamed.
  // Errors: Error.
  void Write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace trainsys
