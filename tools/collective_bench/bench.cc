#include "tools/collective_bench/bench.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "trainsys/platform/memory.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

// Beyond, a floor and peers on few cores say little and take long.
constexpr int kMaxComparedRanks = 8;

bool IsCompared(int ranks) { return ranks > 1 && ranks <= kMaxComparedRanks; }

// Cases and rows are in one order; a case has one row for each kind of call.
void Assign(const PeerTimes& times, size_t kinds,
            std::optional<double> Row::*field, std::vector<Row>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) rows[i].*field = times.us[i / kinds];
}

}  // namespace

Bench::Bench(collectives::RankRunner& runner, BenchOptions options,
             Setting& setting)
    : runner_(runner), options_(std::move(options)), setting_(setting) {
  if (!options_.has_peers) return;
  mpi_.emplace();
  setting_.versions.emplace_back("MPI", mpi_->description());
}

void Bench::Run() {
  PrintHeader();
  for (const int ranks : options_.selection.ranks) {
    all_ += CasesOf(options_.selection, ranks).size() * PartsOf(ranks);
  }
  for (const int ranks : options_.selection.ranks) TimeRanks(ranks);
  if (options_.has_table && runner_.HasFirstRank()) {
    fmt::print("{}", LegendText());
  }
}

void Bench::PrintHeader() const {
  if (!options_.has_table || !runner_.HasFirstRank()) return;
  fmt::print("collectives, ranks as {}\n{}", setting_.backend,
             HeaderText(setting_));
  std::fflush(stdout);
}

size_t Bench::PartsOf(int ranks) const {
  if (!options_.has_peers || !IsCompared(ranks)) return 1;
  return mpi_->is_there() ? 4 : 3;
}

void Bench::TimeRanks(int ranks) {
  ranks_ = ranks;
  const Selection selection = WithinMemory(ranks);
  const std::vector<Case> cases = CasesOf(selection, ranks);
  // Those that do not fit into memory count as done.
  const size_t num_left_out =
      CasesOf(options_.selection, ranks).size() - cases.size();
  done_ += num_left_out * PartsOf(ranks);
  if (cases.empty()) return;
  const Pass pass = TimeOurs(cases);
  done_ += cases.size();
  std::vector<Row> rows = RowsOf(cases, pass.timed);
  try {
    if (pass.signal) throw Interrupted(pass.signal);
    if (PartsOf(ranks) > 1) AddPeers(selection, cases, rows);
  } catch (const Interrupted&) {
    Keep(rows);
    throw;
  }
  Keep(rows);
}

void Bench::Keep(const std::vector<Row>& rows) {
  progress_.Clear();
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  if (!options_.has_table) return;
  fmt::print("{}", RowsText(rows));
  std::fflush(stdout);
}

Pass Bench::TimeOurs(const std::vector<Case>& cases) {
  PassOptions options = OptionsOf("trainsys", options_.selection.is_async);
  options.has_floor = options_.is_threads && IsCompared(ranks_);
  return RunPass(runner_, cases, options);
}

std::vector<Row> Bench::RowsOf(const std::vector<Case>& cases,
                               const std::vector<Timed>& timed) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < timed.size(); ++i) {
    for (const bool is_async : options_.selection.is_async) {
      Row row;
      row.what = cases[i];
      row.is_async = is_async;
      row.ours = is_async ? *timed[i].async : *timed[i].blocking;
      if (timed[i].floor) row.floor_us = timed[i].floor->median_us;
      if (is_async && timed[i].blocking) {
        row.blocking_us = timed[i].blocking->median_us;
      }
      rows.push_back(row);
    }
  }
  return rows;
}

void Bench::AddPeers(const Selection& selection, const std::vector<Case>& cases,
                     std::vector<Row>& rows) {
  const size_t kinds = selection.is_async.size();
  const auto add = [&](const PeerTimes& times,
                       std::optional<double> Row::*field) {
    if (!times.why_not.empty()) Note(times.why_not);
    Assign(times, kinds, field, rows);
    done_ += cases.size();
  };
  add(TimeGlooThreads(cases, OptionsOf("Gloo between threads", {false})),
      &Row::gloo_threads_us);
  Show("Gloo between processes", 0);
  add(TimeGlooProcesses(cases, selection, options_.pace),
      &Row::gloo_processes_us);
  if (!mpi_->is_there()) return;
  Show("MPI", 0);
  add(mpi_->Time(cases, options_.pace), &Row::mpi_us);
}

PassOptions Bench::OptionsOf(const std::string& part,
                             const std::vector<bool>& is_async) {
  PassOptions options;
  options.is_async = is_async;
  options.pace = options_.pace;
  options.on_case = [=, this](size_t i) { Show(part, i); };
  return options;
}

void Bench::Show(const std::string& part, size_t case_of_part) {
  if (!options_.has_table) return;
  progress_.Show("cases", static_cast<int64_t>(done_ + case_of_part),
                 static_cast<int64_t>(all_),
                 fmt::format("{}, {} ranks", part, ranks_));
}

// Without the sizes that do not fit; what a backend itself needs comes on top.
Selection Bench::WithinMemory(int ranks) {
  Selection selection = options_.selection;
  if (!options_.is_threads) return selection;  // processes would disagree
  const double most = 0.7 * static_cast<double>(AvailableMemoryBytes()) / ranks;
  std::erase_if(selection.bytes, [&](int64_t bytes) {
    const bool is_too_large = static_cast<double>(bytes) > most;
    if (is_too_large) {
      Note(fmt::format("not enough memory for {} ranks with {} each", ranks,
                       BytesText(bytes)));
    }
    return is_too_large;
  });
  return selection;
}

void Bench::Note(const std::string& line) {
  setting_.notes.push_back(line);
  progress_.Clear();
  fmt::print(stderr, "{}\n", line);
}

}  // namespace trainsys
