// Command lines of the tools.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

namespace trainsys {

inline constexpr int kExitFailed = 1;    // it ran, and the result is bad
inline constexpr int kExitUsage = 2;     // it could not run as asked
inline constexpr int kExitSignal = 128;  // + the signal that asked it to stop

// libtorch's messages go on with a stack trace.
std::string FirstLine(const std::string& text);

// Prints one line to stderr and returns `code`.
int Complain(const CLI::App& app, const std::string& what, int code);

// Of a seed: CLI11 would take -1 for the largest.
CLI::Validator SeedCheck();

// Gives the program --config FILE and --print-config (see json_config.h) and a
// --help of 80 columns, and reads its flags.
// Result: the exit code if the program is to end here (after --help or
// --print-config, or after one line about a wrong flag), nothing if it is to
// go on.
std::optional<int> Parse(CLI::App& app, int argc, char** argv);

// Runs the program inside an InterruptScope; exceptions become one line and an
// exit code: Interrupted, also as what made a rank fail, 128 + its signal.
int Main(const CLI::App& app, const std::function<int()>& run);

}  // namespace trainsys
