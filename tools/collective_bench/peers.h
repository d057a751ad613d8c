// What trainsys' collectives are compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/pass.h"
#include "tools/collective_bench/shell.h"

namespace trainsys {

// One peer's median of each case, for one call. Units: microseconds. Nothing
// where the peer lacks the case.
//
// Errors of what times them: Interrupted. All others are a why_not.
struct PeerTimes {
  std::vector<std::optional<double>> us;
  std::string why_not;  // one line, where the peer failed as a whole
};

// Gloo between threads of this process. Calls are not compared before data
// moves, which is Gloo's quickest.
PeerTimes TimeGlooThreads(const std::vector<Case>& cases,
                          const PassOptions& options);

// The same between processes: this program, started again for each rank.
// Blocks: until they have ended.
PeerTimes TimeGlooProcesses(const std::vector<Case>& cases,
                            const Selection& selection, const Pace& pace);

// A C program of our own, compiled here by the mpicc that is installed, if any.
class MpiPeer {
 public:
  MpiPeer();

  // One line: whose MPI, or why there is none.
  const std::string& description() const { return description_; }
  bool is_there() const { return is_there_; }

  // bf16 is left out: MPI has no such type.
  PeerTimes Time(const std::vector<Case>& cases, const Pace& pace) const;

 private:
  TempFolder folder_;
  std::string description_;
  bool is_there_ = false;
};

}  // namespace trainsys
