#include "tools/collective_bench/interleave.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "collectives/record/clock.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

constexpr double kTurnNs = 200e3;
constexpr int64_t kMaxCalls = 1 << 20;
constexpr int kMaxTurns = 1000;

// What one rank saw of a turn; the largest of all ranks' say how long it took.
struct Turn {
  int64_t minus_begin_ns = 0;
  int64_t end_ns = 0;
  int64_t took_ns = 0;

  double Ns(const Variant& variant) const {
    return static_cast<double>(variant.is_apart ? end_ns + minus_begin_ns
                                                : took_ns);
  }
};
static_assert(sizeof(Turn) == 3 * sizeof(int64_t));

Turn RunTurn(Communicator& comm, const Variant& variant, int64_t calls) {
  comm.Barrier("turn");
  const int64_t begin_ns = NowNs();
  for (int64_t i = 0; i < calls; ++i) variant.call();
  const int64_t end_ns = NowNs();
  return {-begin_ns, end_ns, end_ns - begin_ns};
}

void Agree(Communicator& comm, std::span<Turn> turns) {
  comm.AllReduce({turns.data(), collectives::DType::kI64,
                  static_cast<int64_t>(turns.size()) * 3},
                 collectives::ReduceOp::kMax, "times of turns");
}

struct Calibration {
  int64_t calls = 1;
  double turn_ns = 0;
};

// Every rank comes to the same figures: it sees the same times.
Calibration Calibrate(Communicator& comm, const Variant& variant) {
  constexpr double kLongNs = 20e6;  // so long that a warm-up would not show
  Calibration now;
  for (bool is_warm = false;; is_warm = true) {
    Turn turn = RunTurn(comm, variant, now.calls);
    Agree(comm, std::span(&turn, 1));
    now.turn_ns = std::max(turn.Ns(variant), 1.0);
    if (now.turn_ns > kLongNs) return now;
    if (!is_warm) continue;
    const double factor = kTurnNs / now.turn_ns;
    if (factor < 2 || now.calls == kMaxCalls) break;
    now.calls =
        std::min(kMaxCalls,
                 static_cast<int64_t>(std::ceil(static_cast<double>(now.calls) *
                                                std::min(factor, 16.0))));
  }
  return now;
}

int TurnsWithin(const Pace& pace,
                const std::vector<Calibration>& calibrations) {
  double each_ns = 0;
  for (const Calibration& calibration : calibrations) {
    each_ns += calibration.turn_ns;
  }
  const int at_least = each_ns > 4e9 ? 1 : each_ns > 0.5e9 ? 3 : 5;
  return static_cast<int>(
      std::clamp<double>(pace.budget_ms * 1e6 / each_ns, at_least, kMaxTurns));
}

}  // namespace

Times Summarize(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const auto at = [&](double share) {
    return us[static_cast<size_t>(
        std::lround(share * static_cast<double>(us.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

std::vector<Times> TimeInterleaved(Communicator& comm,
                                   const std::vector<Variant>& variants,
                                   const Pace& pace) {
  std::vector<Calibration> calibrations;
  for (const Variant& variant : variants) {
    calibrations.push_back(Calibrate(comm, variant));
  }
  const auto turns = static_cast<size_t>(TurnsWithin(pace, calibrations));
  std::vector<std::vector<Turn>> seen(variants.size(),
                                      std::vector<Turn>(turns));
  for (size_t turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < variants.size(); ++i) {
      const size_t v = turn % 2 == 0 ? i : variants.size() - 1 - i;
      seen[v][turn] = RunTurn(comm, variants[v], calibrations[v].calls);
    }
  }
  std::vector<Times> times;
  for (size_t v = 0; v < variants.size(); ++v) {
    Agree(comm, seen[v]);
    std::vector<double> us;
    for (const Turn& turn : seen[v]) {
      us.push_back(turn.Ns(variants[v]) / 1e3 /
                   static_cast<double>(calibrations[v].calls));
    }
    times.push_back(Summarize(std::move(us)));
  }
  return times;
}

}  // namespace trainsys
