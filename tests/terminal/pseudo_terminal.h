// A terminal for tests, and environments for it.
#pragma once

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace trainsys {

// Sets a variable while it lives; without a value it is unset.
class Variable {
 public:
  Variable(std::string name, std::optional<std::string> value)
      : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    Set(value);
  }
  ~Variable() { Set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  const std::string name_;
  std::optional<std::string> before_;
};

// Call: once for each object, Take.
class PseudoTerminal {
 public:
  // `columns`: 0 for a terminal that does not know.
  explicit PseudoTerminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    int program = -1;
    if (openpty(&person_, &program, nullptr, nullptr, &size) != 0) std::abort();
    stream_ = fdopen(program, "w");
  }
  ~PseudoTerminal() {
    if (stream_) std::fclose(stream_);
    close(person_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  std::FILE* stream() const { return stream_; }

  // All that was written to the stream, which is closed; "\n" is "\r\n".
  std::string Take() {
    constexpr int kPatience_ms = 60'000;
    std::fclose(std::exchange(stream_, nullptr));
    std::string text;
    char bytes[4096];
    pollfd person{person_, POLLIN, 0};
    while (poll(&person, 1, kPatience_ms) == 1) {
      const ssize_t length = read(person_, bytes, sizeof(bytes));
      if (length <= 0) return text;
      text.append(bytes, static_cast<size_t>(length));
    }
    return text;
  }

 private:
  int person_ = -1;
  std::FILE* stream_ = nullptr;
};

}  // namespace trainsys
