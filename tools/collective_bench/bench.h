// The benchmark as a whole: ours, the floor and the peers, by ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"
#include "tools/collective_bench/peers.h"
#include "tools/collective_bench/progress.h"
#include "tools/collective_bench/rows.h"

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
  Bench(collectives::RankRunner& runner, BenchOptions options, Setting setting);

  void Run();
  std::string Json() const { return RowsJson(setting_, rows_); }

 private:
  void PrintHeader() const;
  void TimeRanks(int ranks);
  std::vector<Row> TimeOurs(const std::vector<Case>& cases);
  void AddPeers(const Selection& selection, const std::vector<Case>& cases,
                std::vector<Row>& rows);
  PassOptions OptionsOf(const std::string& part, size_t num_cases,
                        const std::vector<bool>& is_async);
  void Show(const std::string& part, size_t done, size_t all);
  Selection WithinMemory(int ranks);
  void Note(const std::string& line);

  collectives::RankRunner& runner_;
  const BenchOptions options_;
  Setting setting_;
  std::optional<MpiPeer> mpi_;
  BenchProgress progress_;
  int ranks_ = 1;  // that are being timed
  std::vector<Row> rows_;
};

}  // namespace trainsys
