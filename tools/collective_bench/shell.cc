#include "tools/collective_bench/shell.h"

#include <fmt/core.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "collectives/errors.h"

namespace trainsys {

TempFolder::TempFolder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "bench_XXXXXX").string();
  if (!mkdtemp(pattern.data())) {
    throw collectives::Error("cannot make a folder like '" + pattern + "'");
  }
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

Outcome RunShell(const std::string& command, int seconds) {
  const std::string all = fmt::format("timeout {} sh -c {} </dev/null 2>&1",
                                      seconds, Quoted(command));
  Outcome outcome;
  FILE* output = popen(all.c_str(), "r");
  if (!output) return {127, "cannot start a shell"};
  char piece[4096];
  while (const size_t bytes = fread(piece, 1, sizeof piece, output)) {
    outcome.output.append(piece, bytes);
  }
  const int status = pclose(output);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

std::string FirstLineOf(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    throw collectives::Error("cannot write '" + path.string() + "'");
  }
}

}  // namespace trainsys
