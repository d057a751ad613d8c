// Other programs, run to their end.
#pragma once

#include <filesystem>
#include <string>

namespace trainsys {

// A folder of this object's own, gone with it. Errors: Error.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// In single quotes, for the shell.
std::string Quoted(const std::string& text);

struct Outcome {
  int code = 0;        // 124: the time was up
  std::string output;  // stdout and stderr together
};

// Blocks: at most `seconds`, and ten more if the program does not heed SIGTERM;
// until about then, too, once this process is interrupted. stdin is empty. A
// Ctrl-C of the terminal does not reach it.
Outcome RunShell(const std::string& command, int seconds);

std::string FirstLineOf(const std::string& text);

std::string ReadFile(const std::filesystem::path& path);
// Errors: Error.
void WriteFile(const std::filesystem::path& path, const std::string& text);

}  // namespace trainsys
