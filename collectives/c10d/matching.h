// The ranks' calls at one place of a channel are compared before data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/c10d/mesh.h"
#include "collectives/call.h"

namespace collectives {

// The facts of a call as bytes, and back; its memory is left out.
// Errors: Error for bytes that Encode did not make.
std::vector<std::byte> Encode(const Call& call);
Call Decode(const std::vector<std::byte>& bytes);

// Each rank tells each other rank, in one message of fixed size, what it does
// next. A small call's data rides along, and then nothing else has to be sent.
// Cost: one message to and from each peer; a second one where they differ.
// Threads: one at a time.
class Matching {
 public:
  struct Outcome {
    std::string mismatch;  // what to say; empty if the calls match
    int left = -1;         // a rank that makes no more calls here, or none
  };

  // `tag` and the next one are its own. Lifetime: the mesh outlives it.
  Matching(Mesh& mesh, int tag);

  // Errors: LinkError.
  Outcome Meet(const Call& call, int64_t deadline_ns);
  // Tells the others that this rank makes no more calls here; returns once
  // each of them has come here, be it for a call.
  void Leave(int64_t deadline_ns);

  // Whether the data of such a call rides along.
  static bool RidesAlong(const Call& call);
  // Computes its result from what Meet has received, after it has matched.
  void Finish(const Call& call) const;

 private:
  enum class Kind : uint32_t { kCall, kLeft };

  struct Message {
    static constexpr size_t kPayloadBytes = 240;

    Kind kind = Kind::kCall;
    uint32_t encoded_bytes = 0;  // of the facts
    uint64_t hash = 0;           // of the facts
    std::byte payload[kPayloadBytes] = {};
  };
  static_assert(sizeof(Message) == 256);

  // messages_[rank()] to all, and theirs into the rest.
  void Exchange(int64_t deadline_ns);
  std::string MismatchText(const std::vector<std::byte>& encoded,
                           int64_t deadline_ns);

  Mesh& mesh_;
  const int tag_;
  std::vector<Message> messages_;  // of each rank
};

}  // namespace collectives
