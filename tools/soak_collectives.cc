// Random collectives on several channels at once, every result checked.
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/run_ranks.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "tools/soak/soak_call.h"
#include "trainsys/random/splitmix64.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;
using collectives::Work;
using nlohmann::ordered_json;

constexpr char kDescription[] =
    "Ranks as threads make random collectives on several channels: all\n"
    "operations, types and reductions, 0 bytes to 1 MiB, blocking and several\n"
    "in flight, continuations that post more, random delays. Every result is\n"
    "compared bit by bit with a serial fold. Exit code 1 at the first that is\n"
    "wrong or fails.\n\n"
    "Example: soak_collectives --seconds 60 --seed 7";

struct SoakOptions {
  int ranks = 8;
  int channels = 4;
  int seconds = 60;
  uint64_t seed = 1;
  std::string json;
};

// Of rank 0, until it was over.
struct SoakResult {
  double seconds = 0;
  uint64_t collectives = 0;
  int64_t bytes = 0;
  std::string error;  // empty: all right
};

constexpr uint64_t kMaxInFlight = 6;         // of a channel, in one turn
constexpr std::chrono::minutes kTimeout{2};  // a hang is an error

// A channel, and a second one for what its continuations post: those run in the
// order of their collectives, so that they too come in one order on all ranks.
struct SoakChannel {
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<Communicator> then;
  uint64_t posted = 0;
  uint64_t posted_then = 0;
};

struct InFlight {
  std::unique_ptr<SoakCall> call;
  Work work;
  int num_continuations = 0;  // that have run
  bool has_continuation = false;
};

// One rank. A turn: each channel gets some collectives in flight, in an order
// between the channels that is the rank's own; one channel a blocking one
// meanwhile; then all are waited for, again in an own order. Whatever a rank
// waits for, the others have posted or will post without it: no deadlock.
class SoakRank {
 public:
  SoakRank(const SoakOptions& options, const SoakValues& values,
           Communicator& comm)
      : options_(options),
        values_(values),
        rank_(comm.rank()),
        common_(SplitMix64::Mix(options.seed, ~uint64_t{0})),
        own_(SplitMix64::Mix(options.seed, 1'000'000 + comm.rank())) {
    for (int c = 0; c < options.channels; ++c) {
      const std::string name = std::to_string(c);
      auto channel = comm.Duplicate(name);
      auto then = comm.Duplicate(name + " then");
      channels_.push_back({std::move(channel), std::move(then)});
    }
  }

  void Turn() {
    std::vector<size_t> order = PostingOrder();
    Shuffle(order);
    in_flight_.reserve(order.size());
    for (size_t c : order) {
      Delay();
      StartOne(c);
    }
    RunBlocking(common_.Below(channels_.size()));
    WaitForAll();
  }

  uint64_t collectives() const { return collectives_; }
  int64_t bytes() const { return bytes_; }

 private:
  // Each channel as often as all ranks post on it in this turn.
  std::vector<size_t> PostingOrder() {
    std::vector<size_t> order;
    for (size_t c = 0; c < channels_.size(); ++c) {
      order.insert(order.end(), common_.Below(kMaxInFlight + 1), c);
    }
    return order;
  }

  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[own_.Below(i)]);
    }
  }

  void StartOne(size_t c) {
    SoakChannel& channel = channels_[c];
    const bool posts_more = channel.posted % 4 == 1;
    auto item = std::make_unique<InFlight>();
    item->call = MakeCall(2 * c, channel.posted++);
    item->work = item->call->PostAsync(*channel.comm);
    item->has_continuation = posts_more || own_.Below(2) == 0;
    if (item->has_continuation) {
      item->work.OnDone([this, c, posts_more, item = item.get()] {
        ++item->num_continuations;
        if (posts_more) StartThen(c);
      });
    }
    in_flight_.push_back(std::move(item));
  }

  void StartThen(size_t c) {
    SoakChannel& channel = channels_[c];
    auto item = std::make_unique<InFlight>();
    item->call = MakeCall(2 * c + 1, channel.posted_then++);
    item->work = item->call->PostAsync(*channel.then);
    then_.push_back(std::move(item));
  }

  void RunBlocking(size_t c) {
    SoakChannel& channel = channels_[c];
    const auto call = MakeCall(2 * c, channel.posted++);
    Delay();
    call->Post(*channel.comm).Wait();
    call->Check();
  }

  void WaitForAll() {
    Shuffle(in_flight_);
    for (auto& item : in_flight_) Finish(*item);
    in_flight_.clear();
    // All continuations have run: nothing is added to these any more.
    Shuffle(then_);
    for (auto& item : then_) Finish(*item);
    then_.clear();
  }

  // Waits, asks all the time, or drops the work, which waits too.
  void Finish(InFlight& item) {
    Delay();
    const uint64_t way = own_.Below(3);
    if (way == 0 && !item.has_continuation) {
      item.work = Work();
    } else {
      while (way == 1 && !item.work.IsDone()) std::this_thread::yield();
      item.work.Wait();
    }
    item.call->Check();
    if (item.num_continuations != (item.has_continuation ? 1 : 0)) {
      throw collectives::Error(
          fmt::format("a continuation of rank {} ran {} times", rank_,
                      item.num_continuations));
    }
  }

  std::unique_ptr<SoakCall> MakeCall(size_t channel, uint64_t sequence) {
    auto call = std::make_unique<SoakCall>(
        SoakPosition{options_.seed, static_cast<int>(channel), sequence,
                     options_.ranks},
        rank_, values_);
    ++collectives_;
    bytes_ += call->bytes();
    return call;
  }

  // Now and then the core is given away, or a rank computes for a while.
  void Delay() {
    const uint64_t kind = own_.Below(32);
    if (kind < 4) std::this_thread::yield();
    if (kind != 4) return;
    for (uint64_t i = own_.Below(100'000); i > 0; --i) own_.Next();
  }

  const SoakOptions options_;
  const SoakValues& values_;
  const int rank_;
  SplitMix64 common_;  // as on all ranks
  SplitMix64 own_;
  std::vector<SoakChannel> channels_;
  std::vector<std::unique_ptr<InFlight>> in_flight_;
  std::vector<std::unique_ptr<InFlight>> then_;
  uint64_t collectives_ = 0;
  int64_t bytes_ = 0;
};

// Rank 0 says when it is over.
void SoakOneRank(const SoakOptions& options, const SoakValues& values,
                 Communicator& comm, SoakResult& result) {
  Progress progress;
  SoakRank rank(options, values, comm);
  const int64_t began_ns = NowNs();
  uint8_t is_over = 0;
  while (is_over == 0) {
    rank.Turn();
    const double seconds = static_cast<double>(NowNs() - began_ns) / 1e9;
    const bool is_time = seconds >= options.seconds || InterruptSignal() != 0;
    is_over = is_time ? 1 : 0;
    comm.Broadcast({&is_over, collectives::DType::kU8, 1}, 0, "is it over");
    if (comm.rank() != 0) continue;
    result = {seconds, rank.collectives(), rank.bytes(), ""};
    progress.Show("seconds", static_cast<int64_t>(seconds), options.seconds,
                  fmt::format("{} collectives", rank.collectives()));
  }
}

void Print(const SoakOptions& options, const SoakResult& result) {
  fmt::print(
      "all right: {} collectives with {:.1f} MiB in {:.1f} s\n"
      "{} ranks, {} channels, seed {}\n",
      result.collectives, static_cast<double>(result.bytes) / (1 << 20),
      result.seconds, options.ranks, options.channels, options.seed);
}

// Errors: Interrupted.
void Soak(const SoakOptions& options, SoakResult& result) {
  const SoakValues values(options.seed);
  try {
    collectives::RunRanks({.ranks = options.ranks, .timeout = kTimeout},
                          [&](Communicator& comm) {
                            SoakOneRank(options, values, comm, result);
                          });
  } catch (const collectives::RankFailed& e) {
    result.error = fmt::format("{} (seed {})", e.what(), options.seed);
    return;
  }
  Print(options, result);
  ThrowIfInterrupted();
}

std::string AsJson(const SoakOptions& options, const SoakResult& result,
                   const Setting& setting) {
  const bool is_right = result.error.empty();
  ordered_json row{
      {"ranks", options.ranks},
      {"channels", options.channels},
      {"seed", options.seed},
      {"seconds", result.seconds},
      {"collectives", result.collectives},
      {"bytes", result.bytes},
      {"passed", is_right},
      {"error", is_right ? ordered_json() : ordered_json(result.error)}};
  return TextOf(ResultOf(setting, ordered_json::array({std::move(row)})));
}

int RunSoak(const SoakOptions& options) {
  OutputFile file("--json", options.json);
  Setting setting = SettingHere("soak_collectives", "threads");
  SoakResult result;
  RunAndWrite([&] { Soak(options, result); }, setting, file,
              [&] { return AsJson(options, result, setting); });
  if (!result.error.empty()) throw collectives::Error(result.error);
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  CLI::App app(trainsys::kDescription, "soak_collectives");
  trainsys::SoakOptions options;
  app.add_option("--ranks", options.ranks, "threads")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--channels", options.channels, "of each rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "how long")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of all that is random")
      ->capture_default_str();
  app.add_option("--json", options.json, "write all figures to this file");
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] { return trainsys::RunSoak(options); });
}
