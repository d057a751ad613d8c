#include "trainsys/testing/record_matchers.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using testing::Matcher;
using testing::MatchResultListener;

constexpr int64_t kEver = std::numeric_limits<int64_t>::max();

struct Finding {
  bool is_match = false;
  std::string words;  // what was found, where that helps
};

// Matches what `look` finds a match in.
template <typename T>
class Sentence final : public testing::MatcherInterface<const T&> {
 public:
  using Look = std::function<Finding(const T&)>;

  Sentence(std::string claim, std::string contrary, Look look)
      : claim_(std::move(claim)),
        contrary_(std::move(contrary)),
        look_(std::move(look)) {}

  bool MatchAndExplain(const T& value,
                       MatchResultListener* listener) const override {
    const Finding finding = look_(value);
    *listener << finding.words;
    return finding.is_match;
  }
  void DescribeTo(std::ostream* out) const override { *out << claim_; }
  void DescribeNegationTo(std::ostream* out) const override {
    *out << contrary_;
  }

 private:
  const std::string claim_;
  const std::string contrary_;
  const Look look_;
};

RecordMatcher OfRecord(std::string claim, std::string contrary,
                       Sentence<Record>::Look look) {
  return testing::MakeMatcher(
      new Sentence<Record>(std::move(claim), std::move(contrary), look));
}

RecorderMatcher OfRecorder(std::string claim, std::string contrary,
                           Sentence<Recorder>::Look look) {
  return testing::MakeMatcher(
      new Sentence<Recorder>(std::move(claim), std::move(contrary), look));
}

// What an inner matcher says of a value, in brackets after `words`.
template <typename T, typename V>
Finding Ask(const Matcher<T>& inner, const V& value, std::string words) {
  testing::StringMatchResultListener listener;
  const bool is_match = inner.MatchAndExplain(value, &listener);
  if (!listener.str().empty()) words += ", " + listener.str();
  return {is_match, std::move(words)};
}

std::string Milliseconds(int64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(ns) / 1e6);
}

std::string NameOf(const PhaseRecord& phase) {
  return fmt::format("'{}' of step {}", phase.name, phase.step);
}

std::string NameOf(const Record& record) {
  return fmt::format("'{}' of rank {}", record.label, record.rank);
}

// "0.100 ms before 'backward' of step 2 began"
std::string Since(int64_t at_ns, const PhaseRecord& phase) {
  if (at_ns < phase.begin_ns) {
    return fmt::format("{} before {} began",
                       Milliseconds(phase.begin_ns - at_ns), NameOf(phase));
  }
  if (phase.end_ns == 0 || at_ns < phase.end_ns) {
    return fmt::format("{} into {}", Milliseconds(at_ns - phase.begin_ns),
                       NameOf(phase));
  }
  return fmt::format("{} after {} had ended",
                     Milliseconds(at_ns - phase.end_ns), NameOf(phase));
}

bool IsIn(const PhaseRecord& phase, int64_t at_ns) {
  return phase.begin_ns <= at_ns && at_ns < phase.end_ns;
}

// "all-reduce average f32 x 1024 'bucket 3'"
std::string Facts(const Record& record) {
  std::string facts(Name(record.operation));
  if (Reduces(record.operation)) {
    facts += fmt::format(" {}", Name(record.reduce_op));
  }
  facts += fmt::format(" {} x {} '{}'", Name(record.dtype), record.elems,
                       record.label);
  return record.is_recomputed ? facts + " (recomputed)" : facts;
}

std::string Labels(const std::vector<Record>& records) {
  std::string labels;
  for (const Record& record : records) {
    labels += fmt::format("{}'{}'", labels.empty() ? "" : ", ", record.label);
  }
  return labels.empty() ? "" : " (" + labels + ")";
}

Finding LookForOverlap(const Recorder& recorder, const PhaseRecord& backward) {
  int64_t until_ns = kEver;  // the next backward
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.name == backward.name && phase.begin_ns > backward.begin_ns) {
      until_ns = std::min(until_ns, phase.begin_ns);
    }
  }
  const std::vector<Record> buckets =
      BucketRecords(recorder, backward.begin_ns, until_ns);
  if (buckets.size() < 2) {
    return {false, fmt::format("rank {} posted {} of the two buckets that an "
                               "overlap takes at least",
                               recorder.rank(), buckets.size())};
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Record& bucket = buckets[b];
    if (bucket.label != "bucket " + std::to_string(b)) {
      return {false, fmt::format("rank {} posted '{}' as number {}",
                                 bucket.rank, bucket.label, b)};
    }
    for (const RecordMatcher& matcher :
         {PostedDuring(backward), WaitedOnlyAfter(backward)}) {
      const Finding finding = Ask(matcher, bucket, "");
      if (!finding.is_match) return {false, finding.words.substr(2)};
    }
  }
  return {true, fmt::format("rank {} posted {} buckets", recorder.rank(),
                            buckets.size())};
}

Finding NoPhase(const Recorder& recorder, const std::string& name,
                int64_t step) {
  return {false, fmt::format("rank {} recorded no '{}' of step {} to its end",
                             recorder.rank(), name, step)};
}

// What `look` finds, if the phase was recorded to its end.
Finding InPhase(const Recorder& recorder, const std::string& name, int64_t step,
                const std::function<Finding(const PhaseRecord&)>& look) {
  const auto phase = FindPhase(recorder, name, step);
  return phase && phase->end_ns != 0 ? look(*phase)
                                     : NoPhase(recorder, name, step);
}

using Channels = std::map<std::string, std::vector<Record>>;

Channels ByChannel(const Recorder& recorder) {
  Channels channels;
  for (const Record& record : recorder.Records()) {
    channels[record.channel].push_back(record);
  }
  return channels;
}

bool AreTheSame(const Record& a, const Record& b) {
  return a.operation == b.operation && a.reduce_op == b.reduce_op &&
         a.dtype == b.dtype && a.elems == b.elems && a.label == b.label &&
         a.is_recomputed == b.is_recomputed;
}

// The first difference on one channel, from `a`'s side; empty if there is none.
std::string Difference(const std::string& channel, const Recorder& a,
                       const std::vector<Record>& of_a, const Recorder& b,
                       const std::vector<Record>& of_b) {
  for (size_t i = 0; i < std::max(of_a.size(), of_b.size()); ++i) {
    const bool are_both = i < of_a.size() && i < of_b.size();
    if (are_both && AreTheSame(of_a[i], of_b[i])) continue;
    const auto facts = [i](const std::vector<Record>& records) {
      return i < records.size() ? Facts(records[i]) : "nothing";
    };
    return fmt::format(
        "number {} on channel '{}' is {} on rank {} and {} on "
        "rank {}",
        i, channel, facts(of_a), a.rank(), facts(of_b), b.rank());
  }
  return "";
}

Finding Compare(const Recorder& recorder, const Recorder& other) {
  Channels mine = ByChannel(recorder);
  Channels theirs = ByChannel(other);
  for (const auto& [channel, records] : mine) theirs[channel];
  for (const auto& [channel, records] : theirs) {
    std::string words =
        Difference(channel, recorder, mine[channel], other, records);
    if (!words.empty()) return {false, std::move(words)};
  }
  return {true, ""};
}

}  // namespace

RecordMatcher IsBucket() {
  return OfRecord("is a bucket", "is no bucket", [](const Record& record) {
    return Finding{
        IsBucket(record),
        fmt::format("{} is {} {} on channel '{}'", NameOf(record),
                    record.is_async ? "an asynchronous" : "a synchronous",
                    Name(record.operation), record.channel)};
  });
}

RecordMatcher IsAsync() {
  return OfRecord(
      "is asynchronous", "is synchronous", [](const Record& record) {
        return Finding{
            record.is_async,
            fmt::format("{} is {}", NameOf(record),
                        record.is_async ? "asynchronous" : "synchronous")};
      });
}

RecordMatcher IsDone() {
  return OfRecord("is done", "is not done", [](const Record& record) {
    constexpr std::string_view kStates[] = {"is in flight", "is done",
                                            "has failed"};
    return Finding{record.state == RecordState::kDone,
                   fmt::format("{} {}", NameOf(record),
                               kStates[static_cast<size_t>(record.state)])};
  });
}

RecordMatcher HasLabel(const Matcher<const std::string&>& label) {
  const std::string claim = testing::DescribeMatcher<const std::string&>(label);
  return OfRecord("has a label that " + claim, "has no label that " + claim,
                  [label](const Record& record) {
                    return Ask(label, record.label,
                               fmt::format("the label is {}", NameOf(record)));
                  });
}

RecordMatcher SentBytes(const Matcher<int64_t>& bytes) {
  const std::string claim = testing::DescribeMatcher<int64_t>(bytes);
  return OfRecord(
      "sent bytes whose number " + claim, "sent no bytes whose number " + claim,
      [bytes](const Record& record) {
        return Ask(
            bytes, record.sent_bytes,
            fmt::format("{} sent {} bytes", NameOf(record), record.sent_bytes));
      });
}

RecordMatcher PostedDuring(const PhaseRecord& phase) {
  return OfRecord(
      "was posted during " + NameOf(phase),
      "was not posted during " + NameOf(phase), [phase](const Record& record) {
        return Finding{IsIn(phase, record.posted_ns),
                       fmt::format("{} was posted {}", NameOf(record),
                                   Since(record.posted_ns, phase))};
      });
}

RecordMatcher WaitedOnlyAfter(const PhaseRecord& phase) {
  return OfRecord(
      "was waited for only after " + NameOf(phase),
      "was waited for before the end of " + NameOf(phase),
      [phase](const Record& record) {
        if (record.wait_began_ns == 0) {
          return Finding{true, NameOf(record) + " was never waited for"};
        }
        return Finding{
            phase.end_ns != 0 && record.wait_began_ns >= phase.end_ns,
            fmt::format("{} was waited for {}", NameOf(record),
                        Since(record.wait_began_ns, phase))};
      });
}

RecorderMatcher HasPhase(const std::string& name, int64_t step) {
  const std::string phase = fmt::format("'{}' of step {}", name, step);
  return OfRecorder(
      "recorded " + phase, "did not record " + phase,
      [name, step](const Recorder& recorder) {
        return InPhase(recorder, name, step, [&](const PhaseRecord& found) {
          return Finding{
              true, fmt::format("it took rank {} {}", recorder.rank(),
                                Milliseconds(found.end_ns - found.begin_ns))};
        });
      });
}

RecorderMatcher PostedDuring(const std::string& phase, int64_t step,
                             const RecordsMatcher& records) {
  const std::string during = fmt::format(
      " during '{}' of step {} what {}", phase, step,
      testing::DescribeMatcher<const std::vector<Record>&>(records));
  return OfRecorder(
      "posted" + during, "did not post" + during,
      [phase, step, records](const Recorder& recorder) {
        return InPhase(recorder, phase, step, [&](const PhaseRecord& found) {
          std::vector<Record> posted = recorder.Records();
          std::erase_if(posted, [&](const Record& record) {
            return !IsIn(found, record.posted_ns);
          });
          return Ask(records, posted,
                     fmt::format("rank {} posted {} there{}", recorder.rank(),
                                 posted.size(), Labels(posted)));
        });
      });
}

RecorderMatcher OverlapsBackward(int64_t step) {
  const std::string of_step = fmt::format(" backward of step {}", step);
  return OfRecorder("overlaps reductions with" + of_step,
                    "overlaps no reductions with" + of_step,
                    [step](const Recorder& recorder) {
                      return InPhase(recorder, "backward", step,
                                     [&](const PhaseRecord& p) {
                                       return LookForOverlap(recorder, p);
                                     });
                    });
}

RecorderMatcher OverlapsBackward(int64_t step,
                                 const std::vector<Bucket>& buckets,
                                 const std::vector<int64_t>& ready_ns) {
  const std::string of_step =
      fmt::format(" {} buckets with backward of step {}", buckets.size(), step);
  return OfRecorder(
      "overlaps" + of_step, "does not overlap" + of_step,
      [step, buckets, ready_ns](const Recorder& recorder) {
        return InPhase(recorder, "backward", step, [&](const PhaseRecord& p) {
          const std::string violation =
              OverlapViolation(recorder, p, buckets, ready_ns);
          if (violation.empty()) return Finding{true, ""};
          return Finding{
              false, fmt::format("on rank {} {}", recorder.rank(), violation)};
        });
      });
}

RecorderMatcher NothingInFlight() {
  return OfRecorder(
      "has nothing in flight", "has something in flight",
      [](const Recorder& recorder) {
        std::vector<Record> pending = recorder.Records();
        std::erase_if(pending, [](const Record& record) {
          return record.state != RecordState::kPosted;
        });
        if (pending.empty()) return Finding{true, ""};
        return Finding{
            false, fmt::format("rank {} has {} in flight{}", recorder.rank(),
                               pending.size(), Labels(pending))};
      });
}

RecorderMatcher Sends(const Matcher<int64_t>& bytes) {
  const std::string claim = testing::DescribeMatcher<int64_t>(bytes);
  return OfRecorder(
      "sends bytes whose number " + claim,
      "sends no bytes whose number " + claim,
      [bytes](const Recorder& recorder) {
        int64_t sum = 0;
        for (const Record& record : recorder.Records()) {
          sum += record.sent_bytes;
        }
        return Ask(bytes, sum,
                   fmt::format("rank {} sent {} bytes", recorder.rank(), sum));
      });
}

RecorderMatcher MakesTheSameCollectivesAs(const Recorder& other) {
  const std::string as_rank =
      fmt::format("the same collectives as rank {}", other.rank());
  return OfRecorder(
      "makes " + as_rank, "does not make " + as_rank,
      [other](const Recorder& recorder) { return Compare(recorder, other); });
}

}  // namespace trainsys

namespace collectives {

void PrintTo(const Record& record, std::ostream* out) {
  *out << fmt::format("{} of rank {}, number {} on channel '{}'",
                      trainsys::Facts(record), record.rank, record.sequence,
                      record.channel);
}

void PrintTo(const Recorder& recorder, std::ostream* out) {
  *out << fmt::format("rank {} with {} collectives and {} phases",
                      recorder.rank(), recorder.Records().size(),
                      recorder.Phases().size());
}

void PrintTo(const PhaseRecord& phase, std::ostream* out) {
  *out << fmt::format("{}, {}", trainsys::NameOf(phase),
                      trainsys::Milliseconds(phase.end_ns - phase.begin_ns));
}

}  // namespace collectives
