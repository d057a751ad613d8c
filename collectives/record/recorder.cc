#include "collectives/record/recorder.h"

#include <algorithm>
#include <utility>

namespace collectives {

int64_t Record::WaitedForPeersNs() const {
  const int64_t until =
      matched_ns ? std::min(matched_ns, wait_ended_ns) : wait_ended_ns;
  return std::max<int64_t>(0, until - wait_began_ns);
}

int64_t Record::WaitedForDataNs() const {
  return std::max<int64_t>(0,
                           wait_ended_ns - wait_began_ns - WaitedForPeersNs());
}

Recorder::Recorder(RecorderParts parts)
    : rank_(parts.rank),
      capacity_(parts.records.size()),
      next_(parts.lost + parts.records.size()),
      ring_(parts.records.size()),
      phases_(std::move(parts.phases)),
      lost_phases_(parts.lost_phases),
      clock_(parts.clock) {
  for (size_t i = 0; i < capacity_; ++i) {
    Record& record = ring_[(parts.lost + i) % capacity_];
    record = std::move(parts.records[i]);
    record.rank = rank_;
  }
}

uint64_t Recorder::Add(Record record) {
  record.rank = rank_;
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(record));
  } else if (capacity_ > 0) {
    ring_[next_ % capacity_] = std::move(record);
  }
  return next_++;
}

Record* Recorder::Find(uint64_t number) {
  if (number >= next_ || next_ - number > ring_.size()) return nullptr;
  return &ring_[number % capacity_];
}

std::vector<Record> Recorder::Records() const {
  std::vector<Record> records;
  records.reserve(ring_.size());
  for (uint64_t n = next_ - ring_.size(); n < next_; ++n) {
    records.push_back(ring_[n % capacity_]);
  }
  return records;
}

size_t Recorder::AddPhase(PhaseRecord phase) {
  // Dropped many at a time, so that each costs nothing.
  if (phases_.size() >= 2 * capacity_) {
    const size_t dropped = phases_.size() - std::min(phases_.size(), capacity_);
    phases_.erase(phases_.begin(),
                  phases_.begin() + static_cast<std::ptrdiff_t>(dropped));
    lost_phases_ += dropped;
  }
  phases_.push_back(std::move(phase));
  return lost_phases_ + phases_.size() - 1;
}

size_t Recorder::BeginPhase(std::string_view name, int64_t step) {
  return AddPhase({std::string(name), step, NowNs(), 0});
}

void Recorder::EndPhase(size_t number) {
  if (number >= lost_phases_) phases_[number - lost_phases_].end_ns = NowNs();
}

RecorderParts Recorder::Parts() const {
  return {rank_, Records(), lost(), phases_, lost_phases_, clock_};
}

}  // namespace collectives
