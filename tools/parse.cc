#include "tools/parse.h"

#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>

#include "collectives/errors.h"
#include "tools/help_formatter.h"
#include "tools/json_config.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/terminal.h"

namespace trainsys {
namespace {

const std::string kPrintConfig = "print all flags as such JSON, and end";

// The program's and its subcommands' alike.
void Prepare(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  app.formatter(formatter);
  AddConfigFlag(app);
  for (CLI::App* const command : app.get_subcommands({})) {
    command->formatter(formatter);
    command->fallthrough();  // to --config and --print-config
  }
}

// Of what `error` says, or of what made its rank fail; 0 for anything else.
int SignalIn(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const Interrupted& interrupted) {
    return interrupted.signal();
  } catch (const collectives::RankFailed& failed) {
    return SignalIn(failed.cause());
  } catch (...) {
    return 0;
  }
}

// `code`, or that of a stdout which did not take all that was printed.
int Flushed(const CLI::App& app, int code) {
  const bool is_written = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (is_written || code != 0) return code;
  return Complain(app, "what it printed could not be written to stdout",
                  kExitFailed);
}

int PrintedAll(const CLI::App& app, const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return Flushed(app, 0);
}

}  // namespace

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

int Complain(const CLI::App& app, const std::string& what, int code) {
  std::fflush(stdout);  // what was printed before stands before
  std::cerr << app.get_name() << ": " << FirstLine(what) << "\n";
  return code;
}

CLI::Validator SeedCheck() {
  const auto check = [](const std::string& text) -> std::string {
    if (!text.starts_with('-')) return "";
    return "is " + text + ", expected a whole number from 0 on";
  };
  return CLI::Validator(check, "", "seed");
}

std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  OpenStandardDescriptors();
  Prepare(app);
  const CLI::Option* const print =
      app.add_flag("--print-config", kPrintConfig)->configurable(false);
  try {
    app.parse(argc, argv);
    if (print->count() == 0) return std::nullopt;
    return PrintedAll(app, ConfigText(app));
  } catch (const CLI::CallForHelp&) {
    return PrintedAll(app, app.help());
  } catch (const CLI::ConversionError& error) {
    return Complain(
        app,
        std::string(error.what()) + "; expected a number in range (see --help)",
        kExitUsage);
  } catch (const CLI::ParseError& error) {
    return Complain(app, std::string(error.what()) + " (see --help)",
                    kExitUsage);
  } catch (const std::exception& error) {
    return Complain(app, error.what(), kExitUsage);
  }
}

int Main(const CLI::App& app, const std::function<int()>& run) {
  const InterruptScope scope;
  try {
    return Flushed(app, run());
  } catch (const collectives::InvalidArgument& error) {
    return Complain(app, error.what(), kExitUsage);
  } catch (const std::exception& error) {
    const int signal = SignalIn(std::current_exception());
    if (signal == 0) return Complain(app, error.what(), kExitFailed);
    return Complain(app, "interrupted", kExitSignal + signal);
  }
}

}  // namespace trainsys
