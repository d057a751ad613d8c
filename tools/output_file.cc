#include "tools/output_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
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
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    throw InvalidArgument(flag + " '" + path_ +
                          "' is no regular file, expected one or none");
  }
  const auto real = std::filesystem::weakly_canonical(path_, ignored);
  if (!real.empty()) path_ = real.string();
  const bool is_writable = std::ofstream(Unfinished()).is_open();
  std::filesystem::remove(Unfinished(), ignored);
  if (!is_writable) {
    throw InvalidArgument("cannot write " + flag + " '" + path_ +
                          "', expected a path in a folder that can be written");
  }
}

void OutputFile::Write(const std::string& text) const {
  if (!is_wanted()) return;
  std::ofstream file(Unfinished());
  file << text << std::flush;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(Unfinished(), path_, error);
  if (file && !error) return;
  std::filesystem::remove(Unfinished(), error);
  throw collectives::Error(
      "cannot write '" + path_ + "': its disk has less than " +
      std::to_string(text.size()) + " bytes left, or its folder has changed");
}

}  // namespace trainsys
