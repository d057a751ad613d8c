#include "trainsys/timeline/step_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/errors.h"
#include "trainsys/terminal/units.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;

constexpr double kNsPerMs = 1e6;

class Axis {
 public:
  Axis(const PhaseRecord& step, int width)
      : begin_ns_(step.begin_ns),
        length_ns_(std::max<int64_t>(1, step.end_ns - step.begin_ns)),
        width_(width) {}

  std::string Ms(int64_t ns) const {
    return fmt::format("{:.1f}",
                       static_cast<double>(ns - begin_ns_) / kNsPerMs);
  }
  std::string Empty() const {
    return std::string(static_cast<size_t>(width_), ' ');
  }
  // At least one character, so that short things show.
  void Fill(std::string& line, int64_t from_ns, int64_t to_ns, char c) const {
    const size_t from = Column(from_ns);
    const size_t to = std::max(from + 1, Column(to_ns));
    std::fill(line.begin() + static_cast<std::ptrdiff_t>(from),
              line.begin() + static_cast<std::ptrdiff_t>(to), c);
  }

 private:
  size_t Column(int64_t ns) const {
    const double share =
        static_cast<double>(ns - begin_ns_) / static_cast<double>(length_ns_);
    return static_cast<size_t>(
        std::clamp(share * width_, 0.0, static_cast<double>(width_ - 1)));
  }

  int64_t begin_ns_;
  int64_t length_ns_;
  int width_;
};

// The columns behind a drawing; what it does not have is empty.
struct Figures {
  std::string from, matched, to, bytes;
};

std::string Line(const std::string& name, const std::string& drawn,
                 const Figures& figures) {
  std::string line =
      fmt::format("  {:<15.15}|{}|{:>7}{:>8}{:>7}{:>9}", name, drawn,
                  figures.from, figures.matched, figures.to, figures.bytes);
  line.resize(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string PhaseLine(const Axis& axis, const PhaseRecord& phase) {
  std::string drawn = axis.Empty();
  axis.Fill(drawn, phase.begin_ns, phase.end_ns, '=');
  return Line(phase.name, drawn,
              {axis.Ms(phase.begin_ns), "", axis.Ms(phase.end_ns), ""});
}

std::string CollectiveLine(const Axis& axis, const Record& record) {
  std::string drawn = axis.Empty();
  if (record.matched_ns > record.posted_ns) {
    axis.Fill(drawn, record.posted_ns, record.matched_ns, '.');
  }
  axis.Fill(drawn, std::max(record.posted_ns, record.matched_ns),
            record.done_ns, '#');
  if (record.is_async) {
    axis.Fill(drawn, record.wait_began_ns, record.wait_began_ns, '|');
  }
  return Line(record.label, drawn,
              {axis.Ms(record.posted_ns), axis.Ms(record.matched_ns),
               axis.Ms(record.done_ns), BytesText(record.bytes)});
}

}  // namespace

std::string DrawStep(const Recorder& recorder, int64_t step, int width) {
  const auto whole = FindPhase(recorder, "step", step);
  if (!whole || whole->end_ns == 0) {
    throw collectives::Error("step " + std::to_string(step) +
                             " was not recorded");
  }
  const Axis axis(*whole, width);
  const auto left = static_cast<size_t>(width) + 19;
  std::string text = fmt::format(
      "step {} of rank {}, {} ms from left to right; times in ms\n"
      "{:<{}}{:>7}{:>8}{:>7}\n",
      step + 1, recorder.rank(), axis.Ms(whole->end_ns),
      "'.' waits for peers, '#' moves data, '|' waited for", left, "posted",
      "matched", "done");
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.step == step && phase.name != "step") {
      text += PhaseLine(axis, phase);
    }
  }
  for (const Record& record : recorder.Records()) {
    if (record.state == RecordState::kDone &&
        record.posted_ns >= whole->begin_ns &&
        record.posted_ns < whole->end_ns) {
      text += CollectiveLine(axis, record);
    }
  }
  return text;
}

}  // namespace trainsys
