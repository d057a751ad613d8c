#include "tools/output_file.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "collectives/errors.h"

namespace trainsys {

using collectives::InvalidArgument;

std::string FromCallersFolder(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder ? (std::filesystem::path(folder) / path).string() : path;
}

OutputFile::OutputFile(const std::string& flag, const std::string& path)
    : path_(path.empty() ? "" : FromCallersFolder(path)) {
  if (path_.empty()) return;
  const auto status = std::filesystem::status(path_);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_regular_file(status)) {
      throw InvalidArgument(flag + " '" + path_ +
                            "' is no regular file, expected one or none");
    }
    path_ = std::filesystem::canonical(path_).string();
  }
  file_.open(Unfinished());
  if (!file_) {
    throw InvalidArgument("cannot write " + flag + " '" + path_ +
                          "', expected a path in a folder that can be written");
  }
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(Unfinished(), ignored);
}

void OutputFile::Write(const std::string& text) {
  if (path_.empty()) return;
  file_ << text << std::flush;
  if (!file_) throw collectives::Error("cannot write '" + path_ + "'");
  file_.close();
  std::filesystem::rename(Unfinished(), path_);
}

}  // namespace trainsys
