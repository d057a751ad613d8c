#include "collectives/record/recorder.h"

#include <algorithm>
#include <utility>

#include "collectives/record/clock.h"

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

size_t Recorder::BeginPhase(std::string_view name, int64_t step) {
  // Dropped many at a time, so that each costs nothing.
  if (phases_.size() >= 2 * capacity_) {
    const size_t dropped = phases_.size() - std::min(phases_.size(), capacity_);
    phases_.erase(phases_.begin(),
                  phases_.begin() + static_cast<std::ptrdiff_t>(dropped));
    lost_phases_ += dropped;
  }
  phases_.push_back({std::string(name), step, NowNs(), 0});
  return lost_phases_ + phases_.size() - 1;
}

void Recorder::EndPhase(size_t number) {
  if (number >= lost_phases_) phases_[number - lost_phases_].end_ns = NowNs();
}

}  // namespace collectives
