// What --help looks like.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace trainsys {

// At most 80 columns: an option with its type and default on the left, what it
// does on the right, or below where there is no room.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace trainsys
