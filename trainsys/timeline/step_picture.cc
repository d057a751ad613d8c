#include "trainsys/timeline/step_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/svg/axis.h"
#include "trainsys/svg/svg.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;

constexpr size_t kMostCollectives = 64;
constexpr double kWidth = 800, kLeft = 124, kRight = kWidth - 24;
constexpr double kTop = 46, kRow = 18, kBar = 11;

PhaseRecord WholeStep(const Recorder& recorder, int64_t step) {
  const auto whole = FindPhase(recorder, "step", step);
  if (whole && whole->end_ns != 0) return *whole;
  throw collectives::Error("step " + std::to_string(step) +
                           " was not recorded");
}

std::vector<PhaseRecord> PhasesOf(const Recorder& recorder, int64_t step) {
  std::vector<PhaseRecord> phases;
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.step == step && phase.name != "step") phases.push_back(phase);
  }
  return phases;
}

std::vector<Record> CollectivesOf(const Recorder& recorder,
                                  const PhaseRecord& whole) {
  std::vector<Record> collectives;
  for (const Record& record : recorder.Records()) {
    if (record.state == RecordState::kDone &&
        record.posted_ns >= whole.begin_ns && record.posted_ns < whole.end_ns) {
      collectives.push_back(record);
    }
  }
  return collectives;
}

// A label as long as there is room for.
std::string Short(const std::string& name) {
  constexpr size_t kMost = 18;
  if (name.size() <= kMost) return name;
  return name.substr(0, kMost - 3) + "...";
}

class Picture {
 public:
  Picture(const Recorder& recorder, int64_t step)
      : whole_(WholeStep(recorder, step)),
        phases_(PhasesOf(recorder, step)),
        collectives_(CollectivesOf(recorder, whole_)),
        axis_(0, Ms(whole_.end_ns), kLeft, kRight),
        svg_({"step", Title(recorder), Says(), kWidth, Bottom() + 40,
              SvgPlace::kFile}) {
    svg_.AddText(kLeft, 16, Title(recorder), "bold");
  }

  std::string Draw() {
    DrawKeys();
    DrawTimes();
    DrawBackward();
    for (const PhaseRecord& phase : phases_) DrawPhase(phase);
    for (size_t i = 0; i < NumShown(); ++i) DrawCollective(collectives_[i]);
    if (NumShown() < collectives_.size()) {
      svg_.AddText(kLeft, y_ + kBar - 1,
                   fmt::format("and {} more collectives",
                               collectives_.size() - NumShown()),
                   "muted");
    }
    return svg_.Finish();
  }

 private:
  double Ms(int64_t ns) const {
    return static_cast<double>(ns - whole_.begin_ns) / 1e6;
  }
  size_t NumShown() const {
    return std::min(collectives_.size(), kMostCollectives);
  }
  double Bottom() const {
    const size_t cut = NumShown() < collectives_.size() ? 1 : 0;
    return kTop + kRow * static_cast<double>(phases_.size() + NumShown() + cut);
  }

  std::string Title(const Recorder& recorder) const {
    return fmt::format("Step {} of rank {}, {:.1f} ms", whole_.step + 1,
                       recorder.rank(), Ms(whole_.end_ns));
  }

  std::string Says() const {
    std::string says;
    for (const PhaseRecord& phase : phases_) {
      says += fmt::format("{} from {:.1f} to {:.1f} ms; ", phase.name,
                          Ms(phase.begin_ns), Ms(phase.end_ns));
    }
    return says + fmt::format("{} collectives on the same time axis.",
                              collectives_.size());
  }

  void DrawKeys() {
    double x = kLeft;
    const auto key = [&](const char* classes, const char* name, double width) {
      svg_.Add("rect", {{"class", classes},
                        {"x", Px(x)},
                        {"y", "24"},
                        {"width", "16"},
                        {"height", "9"}});
      svg_.AddText(x + 21, 33, name, "muted");
      x += width;
    };
    key("fill5", "phase of the step", 134);
    key("hollow stroke2", "waits for the other ranks to post", 214);
    key("fill2", "moves data", 96);
    svg_.AddLine(x + 8, 23, x + 8, 35, "axis");
    svg_.AddText(x + 15, 33, "the rank begins to wait for it", "muted");
  }

  void DrawTimes() {
    const double bottom = Bottom();
    for (const double ms : RoundTicks(axis_.From(), axis_.To(), 8)) {
      svg_.AddLine(axis_.At(ms), kTop - 3, axis_.At(ms), bottom, "grid");
      svg_.AddText(axis_.At(ms), bottom + 15, fmt::format("{:g}", ms),
                   "middle muted");
    }
    svg_.AddLine(kLeft, bottom, kRight, bottom, "axis");
    svg_.AddText(kRight, bottom + 31, "ms since the step began", "end muted");
  }

  // Behind the collectives, so that what ran under it shows.
  void DrawBackward() {
    const double top = kTop + kRow * static_cast<double>(phases_.size()) - 4;
    for (const PhaseRecord& phase : phases_) {
      if (phase.name != "backward") continue;
      const double begin = axis_.At(Ms(phase.begin_ns));
      svg_.Add("rect", {{"class", "band"},
                        {"x", Px(begin)},
                        {"y", Px(top)},
                        {"width", Px(axis_.At(Ms(phase.end_ns)) - begin)},
                        {"height", Px(Bottom() - top)}});
    }
  }

  // At least that wide, so that short things show.
  void DrawBar(int64_t from_ns, int64_t to_ns, const char* classes) {
    constexpr double kLeast = 1.5;
    const double from = std::min(axis_.At(Ms(from_ns)), kRight - kLeast);
    const double to = std::max(axis_.At(Ms(to_ns)), from + kLeast);
    svg_.Add("rect", {{"class", classes},
                      {"x", Px(from)},
                      {"y", Px(y_)},
                      {"width", Px(to - from)},
                      {"height", Px(kBar)}});
  }

  // A row's name; a pointer anywhere on the row is told `says`.
  void BeginRow(const std::string& name, const std::string& says) {
    svg_.Add("rect",
             {{"fill-opacity", "0"},
              {"x", "0"},
              {"y", Px(y_ - 3)},
              {"width", Px(kWidth)},
              {"height", Px(kRow)}},
             name + ": " + says);
    svg_.AddText(kLeft - 8, y_ + kBar - 1, Short(name), "end");
  }

  void DrawPhase(const PhaseRecord& phase) {
    BeginRow(phase.name, fmt::format("{:.2f} to {:.2f} ms", Ms(phase.begin_ns),
                                     Ms(phase.end_ns)));
    DrawBar(phase.begin_ns, phase.end_ns, "fill5");
    y_ += kRow;
  }

  void DrawCollective(const Record& record) {
    BeginRow(record.label,
             fmt::format("{} of {:.1f} KiB, posted {:.2f} ms, matched {:.2f}, "
                         "done {:.2f}",
                         Name(record.operation),
                         static_cast<double>(record.bytes) / 1024,
                         Ms(record.posted_ns), Ms(record.matched_ns),
                         Ms(record.done_ns)));
    const int64_t moves_ns = std::max(record.posted_ns, record.matched_ns);
    if (record.matched_ns > record.posted_ns) {
      DrawBar(record.posted_ns, record.matched_ns, "hollow stroke2 thin");
    }
    DrawBar(moves_ns, record.done_ns, "fill2");
    if (record.is_async) {
      const double x = axis_.At(Ms(record.wait_began_ns));
      svg_.AddLine(x, y_ - 2, x, y_ + kBar + 2, "axis");
    }
    y_ += kRow;
  }

  const PhaseRecord whole_;
  const std::vector<PhaseRecord> phases_;
  const std::vector<Record> collectives_;
  const Axis axis_;
  SvgWriter svg_;
  double y_ = kTop;  // of the next row
};

}  // namespace

std::string PictureOfStep(const Recorder& recorder, int64_t step) {
  return Picture(recorder, step).Draw();
}

}  // namespace trainsys
