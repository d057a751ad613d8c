#include "trainsys/ddp/backward_report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/errors.h"
#include "collectives/rank/failure.h"

namespace trainsys {
namespace {

using Outcome = BackwardReport::Outcome;

constexpr size_t kHeaderBytes = sizeof(double) + 1;
constexpr double kUnweighted = std::numeric_limits<double>::quiet_NaN();

// Of a parameter, in its byte.
uint8_t Bit(size_t parameter) {
  return static_cast<uint8_t>(1U << (parameter % 8));
}

std::string RanksText(const std::vector<int>& ranks, size_t all) {
  return ranks.size() == all ? "all ranks" : collectives::RankList(ranks);
}

}  // namespace

size_t EncodedBytes(size_t parameters) {
  return kHeaderBytes + (parameters + 7) / 8;
}

std::vector<uint8_t> Encode(const BackwardReport& report) {
  std::vector<uint8_t> bytes(EncodedBytes(report.is_used.size()));
  const double weight = report.weight.value_or(kUnweighted);
  std::memcpy(bytes.data(), &weight, sizeof(double));
  bytes[sizeof(double)] = static_cast<uint8_t>(report.outcome);
  for (size_t p = 0; p < report.is_used.size(); ++p) {
    if (!report.is_used[p]) continue;
    bytes[kHeaderBytes + p / 8] |= Bit(p);
  }
  return bytes;
}

std::vector<BackwardReport> Decode(std::span<const uint8_t> bytes, size_t ranks,
                                   size_t parameters) {
  std::vector<BackwardReport> reports(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    const uint8_t* const of_rank = bytes.data() + r * EncodedBytes(parameters);
    BackwardReport& report = reports[r];
    double weight = 0;
    std::memcpy(&weight, of_rank, sizeof(double));
    if (!std::isnan(weight)) report.weight = weight;
    report.outcome = static_cast<Outcome>(of_rank[sizeof(double)]);
    report.is_used.resize(parameters);
    for (size_t p = 0; p < parameters; ++p) {
      report.is_used[p] = (of_rank[kHeaderBytes + p / 8] & Bit(p)) != 0;
    }
  }
  return reports;
}

std::optional<int> WhoGaveUp(const std::vector<BackwardReport>& reports) {
  for (size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].outcome == Outcome::kGivenUp) return static_cast<int>(r);
  }
  return std::nullopt;
}

bool IsUsedAnywhere(const std::vector<BackwardReport>& reports,
                    size_t parameter) {
  return std::any_of(
      reports.begin(), reports.end(),
      [parameter](const auto& report) { return report.is_used[parameter]; });
}

bool IsAnythingUsed(const std::vector<BackwardReport>& reports) {
  for (size_t p = 0; p < reports.at(0).is_used.size(); ++p) {
    if (IsUsedAnywhere(reports, p)) return true;
  }
  return false;
}

std::string UnusedText(const std::vector<BackwardReport>& reports,
                       const std::vector<std::string>& names) {
  std::string text;
  for (size_t p = 0; p < names.size(); ++p) {
    std::vector<int> ranks;
    for (size_t r = 0; r < reports.size(); ++r) {
      const bool is_missing =
          reports[r].outcome == Outcome::kDone && !reports[r].is_used[p];
      if (is_missing) ranks.push_back(static_cast<int>(r));
    }
    if (ranks.empty()) continue;
    text += (text.empty() ? "'" : ", '") + names[p] + "' on " +
            RanksText(ranks, reports.size());
  }
  return text;
}

double TotalWeight(const std::vector<BackwardReport>& reports) {
  double total = 0;
  std::vector<int> without;
  for (size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].outcome != Outcome::kDone) continue;
    if (!reports[r].weight) without.push_back(static_cast<int>(r));
    total += reports[r].weight.value_or(0);
  }
  if (!without.empty()) {
    throw collectives::Error(RanksText(without, reports.size()) +
                             " did not weigh the losses; expected Weigh for "
                             "each, as weigh_losses asks");
  }
  if (!(total > 0)) {
    throw collectives::Error(
        "the ranks' weights add up to 0, expected one above 0 at least");
  }
  return total;
}

}  // namespace trainsys
