// A tool's flags as a file: {"ranks": 4, "zero": 2, "overlap-step": true}.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace trainsys {

// Adds --config FILE. The file is a JSON object whose keys are flags without
// their dashes; lists are arrays, and a subcommand is an object that has its
// flags, and is chosen by it unless the command line chooses. A flag of the
// command line wins over the file, also one that excludes a flag of the file.
// Call: after all flags and subcommands were added.
// Parsing throws: InvalidArgument for what is no such file.
void AddConfigFlag(CLI::App& app);

// The flags that a parsed command line and its file come to, defaults
// included, as text that --config takes; without those that have no value.
std::string ConfigText(const CLI::App& app);

}  // namespace trainsys
