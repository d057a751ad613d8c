#include "tools/collective_bench/peers.h"

#include <fmt/core.h>

#include <csignal>
#include <exception>

#include "collectives/c10d/process_runner.h"
#include "collectives/errors.h"
#include "tools/backend.h"
#include "tools/collective_bench/rows.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

PeerTimes Failed(const std::vector<Case>& cases, const std::string& why) {
  return {std::vector<std::optional<double>>(cases.size()), FirstLineOf(why)};
}

template <typename T, typename AsText>
std::string Joined(const std::vector<T>& values, const AsText& as_text) {
  std::string all;
  for (const T& value : values) {
    all += fmt::format("{}{}", all.empty() ? "" : ",", as_text(value));
  }
  return all;
}

// The flags by which this program times the cases as one of several processes.
std::vector<std::string> FlagsOf(const Selection& selection, int ranks,
                                 const Pace& pace, const std::string& json) {
  const auto name = [](auto value) { return Name(value); };
  const auto number = [](int64_t value) { return std::to_string(value); };
  return {"bench_collectives",
          "--backend=gloo",
          "--gloo-native",
          "--no-matching",
          "--no-table",
          "--calls=blocking",
          "--ranks=" + std::to_string(ranks),
          "--only=" + Joined(selection.operations, name),
          "--bytes=" + Joined(selection.bytes, number),
          "--dtypes=" + Joined(selection.dtypes, name),
          fmt::format("--budget-ms={:.3f}", pace.budget_ms),
          "--json=" + json};
}

}  // namespace

PeerTimes TimeGlooThreads(const std::vector<Case>& cases,
                          const PassOptions& options) {
  collectives::C10dOptions c10d;
  c10d.library = collectives::Library::kGloo;
  c10d.is_matching = false;
  collectives::GlooThreadRunner runner(c10d);
  try {
    const Pass pass = RunPass(runner, cases, options);
    if (pass.signal) throw Interrupted(pass.signal);
    PeerTimes times;
    for (const Timed& timed : pass.timed) {
      times.us.emplace_back(timed.blocking->median_us);
    }
    return times;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    return Failed(cases, std::string("Gloo between threads: ") + error.what());
  }
}

PeerTimes TimeGlooProcesses(const std::vector<Case>& cases,
                            const Selection& selection, const Pace& pace) {
  const std::string what = "Gloo between processes: ";
  try {
    const TempFolder folder;
    const auto json = folder.path() / "rows.json";
    auto flags = FlagsOf(selection, cases.front().ranks, pace, json.string());
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    const int code = Launch(cases.front().ranks, argv.data());
    // The launcher handles signals by itself.
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
      if (code == 128 + signal) throw Interrupted(signal);
    }
    if (code != 0) {
      return Failed(cases, what + "exit code " + std::to_string(code));
    }
    const auto medians = MediansInJson(ReadFile(json), cases);
    return {{medians.begin(), medians.end()}, {}};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    return Failed(cases, what + error.what());
  }
}

}  // namespace trainsys
