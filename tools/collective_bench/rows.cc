#include "tools/collective_bench/rows.h"

#include <fmt/core.h>

#include <algorithm>

namespace trainsys {
namespace {

double GBps(const Row& row) {
  return static_cast<double>(row.what.bytes) / row.ours.median_us / 1e3;
}

// Three or four digits.
std::string Figure(double value) {
  if (value < 10) return fmt::format("{:.2f}", value);
  if (value < 100) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string Ratio(std::optional<double> above, std::optional<double> below) {
  if (!above || !below || *below <= 0) return "-";
  const double ratio = *above / *below;
  return ratio < 9999.5 ? Figure(ratio) : ">9999";
}

std::string RowText(const Row& row) {
  const bool has_data = row.what.bytes > 0;
  const std::optional<double> ours = row.ours.median_us;
  return fmt::format(
      "{:>8} {:<4} {:<5} {:>8} {:>8} {:>5} {:>5} {:>5} {:>6} {:>5} {:>5} "
      "{:>5}\n",
      has_data ? BytesText(row.what.bytes) : "-",
      has_data ? Name(row.what.dtype) : "-", row.is_async ? "async" : "block",
      Figure(row.ours.median_us), Figure(row.ours.p90_us),
      has_data ? Figure(GBps(row)) : "-",
      has_data ? Figure(GBps(row) * BusFactor(row.what)) : "-",
      Ratio(ours, row.floor_us), Ratio(ours, row.blocking_us),
      Ratio(row.gloo_threads_us, ours), Ratio(row.gloo_processes_us, ours),
      Ratio(row.mpi_us, ours));
}

std::string ColumnsText() {
  return fmt::format(
      "{:>19} {:>17} {:>11} {:>12} {:>17}\n"
      "{:>8} {:<4} {:<5} {:>8} {:>8} {:>5} {:>5} {:>5} {:>6} {:>5} {:>5} "
      "{:>5}\n",
      "", "time, us", "GB/s", "ours over", "theirs over ours", "size", "type",
      "calls", "median", "p90", "alg", "bus", "floor", "block", "Gl.t", "Gl.p",
      "MPI");
}

}  // namespace

std::optional<double> Row::gloo_us() const {
  if (!gloo_threads_us) return gloo_processes_us;
  if (!gloo_processes_us) return gloo_threads_us;
  return std::min(*gloo_threads_us, *gloo_processes_us);
}

std::string LegendText() {
  return R"(
A turn is a barrier and then calls back to back for about 200 us; its time is
that of the slowest rank, for one call. GB/s: bytes of the whole buffer by the
median; bus: what a ring's link carries. floor: the least memory traffic on as
many threads with nobody to wait for, in the same turns. block: our blocking
call. Gloo between threads (Gl.t) and processes (Gl.p), and MPI: blocking calls.
Gloo's all-reduce is its own (of bf16 from libtorch 2 on); its other operations
are our exchange over its connections. With more ranks than cores its small
messages wait for the scheduler, milliseconds at a time: claim nothing from
those. MPI's broadcasts do not wait for one another.
)";
}

std::string RowsText(const std::vector<Row>& rows) {
  std::string text;
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (!before || before->what.operation != row.what.operation ||
        before->what.ranks != row.what.ranks) {
      text +=
          fmt::format("\n{}, {} {}\n", Name(row.what.operation), row.what.ranks,
                      row.what.ranks == 1 ? "rank" : "ranks");
      text += ColumnsText();
    }
    text += RowText(row);
    before = &row;
  }
  return text;
}

}  // namespace trainsys
