#include "tools/output_folder.h"

#include <filesystem>
#include <system_error>

#include "collectives/errors.h"
#include "tools/output_file.h"

namespace trainsys {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(const std::string& flag, const std::string& path)
    : path_(FromCallersFolder(path)) {
  const auto refuse = [&](const std::string& why) {
    throw collectives::InvalidArgument(flag + " '" + path_ + "' " + why);
  };
  if (path.empty()) refuse("is empty, expected a folder");
  std::error_code error;
  fs::create_directories(path_, error);
  if (!fs::is_directory(path_)) {
    refuse("is no folder and cannot be made one, expected a path to one");
  }
  try {
    OutputFile(flag, (fs::path(path_) / "report.json").string());
  } catch (const collectives::InvalidArgument&) {
    refuse("cannot be written into, expected a folder of yours");
  }
}

void OutputFolder::Write(const std::string& name,
                         const std::string& text) const {
  const fs::path file = fs::path(path_) / name;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  OutputFile(name, file.string()).Write(text);
}

}  // namespace trainsys
