// The benchmark as a whole: ours, the floor and the peers, by ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"
#include "tools/collective_bench/peers.h"
#include "tools/collective_bench/rows.h"
#include "tools/setting.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {

struct BenchOptions {
  Selection selection;
  Pace pace;
  bool is_threads = true;  // ranks are threads: with the floor
  bool has_peers = true;   // with Gloo and MPI, too
  bool has_table = true;
};

// Prints as it goes, where rank 0 is. Threads: one.
class Bench {
 public:
  // Lifetime: `runner` and `setting` outlive it.
  Bench(collectives::RankRunner& runner, BenchOptions options,
        Setting& setting);

  // Errors: Interrupted, between two cases; the rows are those until then.
  void Run();
  std::string Json() const { return RowsJson(setting_, rows_); }

 private:
  void PrintHeader() const;
  size_t PartsOf(int ranks) const;
  void TimeRanks(int ranks);
  Pass TimeOurs(const std::vector<Case>& cases);
  std::vector<Row> RowsOf(const std::vector<Case>& cases,
                          const std::vector<Timed>& timed) const;
  void AddPeers(const Selection& selection, const std::vector<Case>& cases,
                std::vector<Row>& rows);
  PassOptions OptionsOf(const std::string& part,
                        const std::vector<bool>& is_async);
  void Keep(const std::vector<Row>& rows);
  void Show(const std::string& part, size_t case_of_part);
  Selection WithinMemory(int ranks);
  void Note(const std::string& line);

  collectives::RankRunner& runner_;
  const BenchOptions options_;
  Setting& setting_;
  std::optional<MpiPeer> mpi_;
  Progress progress_;
  int ranks_ = 1;  // that are being timed
  // Cases, once for each part: ours and each peer.
  size_t done_ = 0;
  size_t all_ = 0;
  std::vector<Row> rows_;
};

}  // namespace trainsys
