// Command lines of the tools.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "collectives/errors.h"

namespace trainsys {

inline constexpr int kExitFailed = 1;  // it ran, and the result is bad
inline constexpr int kExitUsage = 2;   // it could not run as asked

// libtorch's messages go on with a stack trace.
inline std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Prints one line and returns `code`.
inline int Complain(const CLI::App& app, const std::string& what, int code) {
  std::cerr << app.get_name() << ": " << FirstLine(what) << "\n";
  return code;
}

// Result: the exit code if the program is to end here (after --help, or after
// one line about a wrong flag), nothing if it is to go on.
inline std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ConversionError& error) {
    return Complain(
        app,
        std::string(error.what()) + "; expected a number in range (see --help)",
        kExitUsage);
  } catch (const CLI::ParseError& error) {
    return Complain(app, std::string(error.what()) + " (see --help)",
                    kExitUsage);
  }
}

// Runs the program; exceptions become one line and an exit code.
inline int Main(const CLI::App& app, const std::function<int()>& run) {
  try {
    const int code = run();
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return Complain(app, "what it printed could not be written to stdout",
                    kExitFailed);
  } catch (const collectives::InvalidArgument& error) {
    return Complain(app, error.what(), kExitUsage);
  } catch (const std::exception& error) {
    return Complain(app, error.what(), kExitFailed);
  }
}

}  // namespace trainsys
