// What one rank did, when: its collectives and the phases of its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "collectives/record/clock.h"
#include "collectives/types.h"

namespace collectives {

enum class RecordState : uint8_t { kPosted, kDone, kFailed };

// One collective of one rank. Times are NowNs() of the rank, or of rank 0 once
// the recorder is in its clock; 0 means "not yet".
struct Record {
  int rank = 0;
  std::string channel;
  uint64_t sequence = 0;  // of the channel, from 0
  Operation operation = Operation::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  DType dtype = DType::kU8;
  int64_t elems = 0;
  int64_t bytes = 0;       // elems of the whole buffer, in bytes
  int64_t sent_bytes = 0;  // by rule: what a network would carry (SentBytes)
  std::string label;
  bool is_async = false;
  bool is_recomputed = false;
  RecordState state = RecordState::kPosted;

  int64_t posted_ns = 0;
  int64_t matched_ns = 0;  // the last rank came
  int64_t done_ns = 0;     // the last element was written
  int64_t wait_began_ns = 0;
  int64_t wait_ended_ns = 0;

  // Of the time in Wait: for peers to come, and for data to move after that.
  int64_t WaitedForPeersNs() const;
  int64_t WaitedForDataNs() const;
};

// A marked stretch of a rank's time: "step", "forward", "backward", ...
struct PhaseRecord {
  std::string name;
  int64_t step = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // 0 while it lasts
};

// All that a Recorder knows.
struct RecorderParts {
  int rank = 0;
  std::vector<Record> records;  // oldest first
  uint64_t lost = 0;
  std::vector<PhaseRecord> phases;  // oldest first
  size_t lost_phases = 0;
  ClockEstimate clock;
};

// Ring of the newest records, one for each rank. Threads: written by the
// rank's own thread only; read by it, or by anyone after the rank has ended.
// Cost: one Record copied a collective, no lock.
class Recorder {
 public:
  static constexpr size_t kDefaultCapacity = size_t{1} << 14;

  explicit Recorder(int rank, size_t capacity = kDefaultCapacity)
      : rank_(rank), capacity_(capacity) {}
  // As it was elsewhere, to be read here: the ring is as long as the records.
  explicit Recorder(RecorderParts parts);

  int rank() const { return rank_; }

  // Returns the record's number, to be given to Find.
  uint64_t Add(Record record);

  // The record to complete, or null if the ring has gone past it.
  Record* Find(uint64_t number);

  // Oldest first.
  std::vector<Record> Records() const;
  // How many records the ring has dropped.
  uint64_t lost() const { return next_ > capacity_ ? next_ - capacity_ : 0; }

  // Both return the phase's number, to be given to EndPhase. The newest phases
  // are kept, as many as the capacity at least and twice as many at most.
  size_t AddPhase(PhaseRecord phase);
  size_t BeginPhase(std::string_view name, int64_t step);
  void EndPhase(size_t number);
  // Oldest first.
  const std::vector<PhaseRecord>& Phases() const { return phases_; }
  size_t lost_phases() const { return lost_phases_; }

  // By what the times were shifted into rank 0's clock; see clock_offset.h.
  const ClockEstimate& clock() const { return clock_; }

  RecorderParts Parts() const;

 private:
  int rank_;
  size_t capacity_;
  uint64_t next_ = 0;  // number of the next record
  std::vector<Record> ring_;
  std::vector<PhaseRecord> phases_;
  size_t lost_phases_ = 0;
  ClockEstimate clock_;
};

// Marks a phase for as long as it lives.
class PhaseScope {
 public:
  PhaseScope(Recorder& recorder, std::string_view name, int64_t step)
      : recorder_(recorder), number_(recorder.BeginPhase(name, step)) {}
  ~PhaseScope() { recorder_.EndPhase(number_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Recorder& recorder_;
  size_t number_;
};

}  // namespace collectives
