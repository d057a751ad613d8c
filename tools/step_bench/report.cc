#include "tools/step_bench/report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr Rung kWrapped[] = {Rung::kSimple, Rung::kAsync, Rung::kBucketed};

Quartiles Ratios(const std::vector<double>& above,
                 const std::vector<double>& below) {
  return OverTurns(below.size(),
                   [&](size_t turn) { return above[turn] / below[turn]; });
}

// Four digits.
std::string RatioText(double ratio) {
  return fmt::format("{:.{}f}", ratio, ratio < 10 ? 3 : 1);
}

ordered_json AsJson(const Quartiles& q) {
  return {{"p25", q.low}, {"median", q.median}, {"p75", q.high}};
}

ordered_json AsJson(const StepRow& row) {
  ordered_json json{{"model", row.what.name},
                    {"parameters", ParameterCount(row.what.model)},
                    {"ranks", row.what.ranks},
                    {"rows", row.what.rows},
                    {"context", row.what.model.context},
                    {"bucket_bytes", row.what.bucket_bytes},
                    {"turns", row.times[Rung::kIdeal].size()},
                    {"ideal_ms", row.Ms(Rung::kIdeal)}};
  for (const Rung rung : kWrapped) {
    json[Name(rung) + "_ms"] = row.Ms(rung);
    json[Name(rung) + "_over_ideal"] = AsJson(row.OverIdeal(rung));
  }
  const auto ms = row.PeerMs();
  const auto ratio = row.PeerOverBucketed();
  json["torch_ms"] = ms ? ordered_json(*ms) : ordered_json(nullptr);
  json["torch_over_bucketed"] = ratio ? AsJson(*ratio) : ordered_json(nullptr);
  return json;
}

ordered_json AsJson(const Bookkeeping& costs) {
  return {{"empty_hook_us_per_parameter", costs.empty_hook_us},
          {"backward_us_per_parameter", costs.backward_us},
          {"step_us_per_parameter", costs.step_us},
          {"records_per_step", costs.records},
          {"record_ns", costs.record_ns},
          {"step_ms", costs.step_ms},
          {"recorder_percent", costs.RecorderPercent()},
          {"ledger_percent", AsJson(costs.ledger_percent)}};
}

}  // namespace

Quartiles StepRow::OverIdeal(Rung rung) const {
  return Ratios(times[rung], times[Rung::kIdeal]);
}

std::optional<double> StepRow::PeerMs() const {
  if (times.peer_ms.empty()) return std::nullopt;
  return Median(times.peer_ms);
}

std::optional<Quartiles> StepRow::PeerOverBucketed() const {
  if (times.peer_ms.empty()) return std::nullopt;
  return Ratios(times.peer_ms, times[Rung::kBucketed]);
}

std::string StepLegendText() {
  return R"(
A step: gradients dropped, forward, backward, gradients averaged; no optimizer,
no recomputation, no memory ledger. From the first rank's begin to the last
one's end, medians of turns. ideal: the ranks compute without collectives; x:
how many times that, pair by pair. torch: DistributedDataParallel over Gloo in
as many processes, the same model and buckets; its time over BucketedDDP's.
)";
}

std::string StepColumnsText() {
  std::string text =
      fmt::format("\n{:<8}{:>5}{:>8}", "model", "ranks", "ideal");
  for (const Rung rung : kWrapped) {
    text += fmt::format("{:>15}", Name(rung));
  }
  text += fmt::format("{:>8}{:>6}\n{:>21}", "torch", "over", "ms");
  for (size_t i = 0; i < std::size(kWrapped); ++i) {
    text += fmt::format("{:>9}{:>6}", "ms", "x");
  }
  return text + fmt::format("{:>8}{:>6}\n", "ms", "ours");
}

std::string StepRowText(const StepRow& row) {
  std::string text = fmt::format("{:<8}{:>5}{:>8.1f}", row.what.name,
                                 row.what.ranks, row.Ms(Rung::kIdeal));
  for (const Rung rung : kWrapped) {
    text += fmt::format("{:>9.1f}{:>6}", row.Ms(rung),
                        RatioText(row.OverIdeal(rung).median));
  }
  const auto ms = row.PeerMs();
  if (!ms) return text + fmt::format("{:>8}{:>6}\n", "-", "-");
  return text + fmt::format("{:>8.1f}{:>6}\n", *ms,
                            RatioText(row.PeerOverBucketed()->median));
}

std::string BookkeepingText(const StepCase& what, const Bookkeeping& costs) {
  return fmt::format(
      "\nbookkeeping, one rank\n"
      "hooks          {:.2f} us a parameter in backward, of which {:.2f} are\n"
      "               libtorch's for any hook; {:.2f} us in the whole step\n"
      "               (BucketedDDP, {} parameters of one element)\n"
      "recorder       {:.5f} % of the step ({}, BucketedDDP, {:.1f} ms):\n"
      "               {} records and {} phases of {:.0f} ns\n"
      "memory ledger  {:+.2f} % of that step, quartiles {:+.2f} {:+.2f} %\n",
      costs.backward_us, costs.empty_hook_us, costs.step_us,
      Bookkeeping::kParameters, costs.RecorderPercent(), what.name,
      costs.step_ms, costs.records, Bookkeeping::kPhases, costs.record_ns,
      costs.ledger_percent.median, costs.ledger_percent.low,
      costs.ledger_percent.high);
}

std::string StepJson(const Setting& setting, const std::vector<StepRow>& rows,
                     const std::optional<Bookkeeping>& costs) {
  ordered_json list = ordered_json::array();
  for (const StepRow& row : rows) list.push_back(AsJson(row));
  ordered_json result = ResultOf(setting, std::move(list));
  result["bookkeeping"] = costs ? AsJson(*costs) : ordered_json(nullptr);
  return TextOf(result);
}

}  // namespace trainsys
