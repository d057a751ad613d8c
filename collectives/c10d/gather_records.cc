#include "collectives/c10d/gather_records.h"

#include <cstddef>
#include <cstdlib>

#include "collectives/record/clock.h"
#include "collectives/record/clock_offset.h"
#include "collectives/record/record_bytes.h"

namespace collectives {
namespace {

constexpr int kTag = 0;
constexpr int kTrips = 16;

class Peer {
 public:
  Peer(Mesh& mesh, int rank, std::chrono::nanoseconds timeout)
      : mesh_(mesh), rank_(rank), timeout_(timeout) {}

  void Send(const void* data, size_t bytes) {
    Wait({{rank_, const_cast<void*>(data), static_cast<int64_t>(bytes)}}, {});
  }
  void Receive(void* data, size_t bytes) {
    Wait({}, {{rank_, data, static_cast<int64_t>(bytes)}});
  }
  void Send(int64_t value) { Send(&value, sizeof(value)); }
  int64_t Receive() {
    int64_t value = 0;
    Receive(&value, sizeof(value));
    return value;
  }

 private:
  void Wait(const std::vector<Piece>& sends,
            const std::vector<Piece>& receives) {
    mesh_.Start(sends, receives, kTag, Mesh::Phase::kMatching)
        ->Wait(DeadlineAfter(timeout_));
  }

  Mesh& mesh_;
  const int rank_;
  const std::chrono::nanoseconds timeout_;
};

void Answer(Peer& first) {
  for (int i = 0; i < kTrips; ++i) {
    first.Receive();
    first.Send(NowNs());
  }
}

ClockEstimate Ask(Peer& peer) {
  std::vector<RoundTrip> trips;
  for (int i = 0; i < kTrips; ++i) {
    RoundTrip trip;
    trip.sent_ns = NowNs();
    peer.Send(trip.sent_ns);
    trip.answered_ns = peer.Receive();
    trip.received_ns = NowNs();
    trips.push_back(trip);
  }
  ClockEstimate clock = EstimateClock(trips);
  // It may well be the same clock: shifting would only add the error.
  if (std::abs(clock.offset_ns) <= clock.error_ns) clock.offset_ns = 0;
  return clock;
}

}  // namespace

std::vector<Recorder> GatherRecords(Mesh& mesh, const Recorder& mine,
                                    std::chrono::nanoseconds timeout) {
  if (mesh.rank() != 0) {
    Peer first(mesh, 0, timeout);
    Answer(first);
    const std::vector<std::byte> bytes = ToBytes(mine);
    first.Send(static_cast<int64_t>(bytes.size()));
    first.Send(bytes.data(), bytes.size());
    return {};
  }
  std::vector<Recorder> recorders{mine};
  for (int r = 1; r < mesh.ranks(); ++r) {
    Peer peer(mesh, r, timeout);
    const ClockEstimate clock = Ask(peer);
    std::vector<std::byte> bytes(static_cast<size_t>(peer.Receive()));
    peer.Receive(bytes.data(), bytes.size());
    recorders.push_back(InFirstRanksClock(FromBytes(bytes), clock));
  }
  return recorders;
}

}  // namespace collectives
