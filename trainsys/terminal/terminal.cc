#include "trainsys/terminal/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace trainsys {
namespace {

constexpr size_t kUsualWidth = 80;
constexpr char kGreen[] = "\033[32m";
constexpr char kRed[] = "\033[31m";
constexpr char kPlain[] = "\033[0m";

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string Painted(const std::string& line, const char* colour) {
  constexpr size_t kWord = 4;
  return colour + line.substr(0, kWord) + kPlain + line.substr(kWord);
}

bool IsInsideOfCharacter(char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

bool IsTerminal(std::FILE* stream) {
  const std::string_view term = Variable("TERM");
  return isatty(fileno(stream)) && !term.empty() && term != "dumb";
}

size_t WidthOf(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const std::string_view text = Variable("COLUMNS");
  size_t width = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), width);
  const bool is_number =
      parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_number && width > 0 ? width : kUsualWidth;
}

bool WantsColour(std::FILE* stream) {
  return Variable("NO_COLOR").empty() && IsTerminal(stream);
}

void OpenStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

void Put(const std::string& text, std::FILE* stream) {
  std::fputs(text.c_str(), stream);
  std::fflush(stream);
}

std::string Paint(const std::string& text, std::FILE* stream) {
  if (!WantsColour(stream)) return text;
  std::string painted;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("PASS")) line = Painted(line, kGreen);
    if (line.starts_with("FAIL")) line = Painted(line, kRed);
    painted += line;
    if (!lines.eof()) painted += '\n';
  }
  return painted;
}

std::string CutToColumns(const std::string& text, size_t columns) {
  size_t used = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsInsideOfCharacter(text[i])) continue;
    if (used++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace trainsys
