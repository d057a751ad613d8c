#include "collectives/c10d/process_runner.h"

#include <exception>
#include <string>
#include <utility>

#include "collectives/c10d/local_address.h"
#include "collectives/c10d/run_rank.h"
#include "collectives/c10d/verdict.h"
#include "collectives/errors.h"
#include "collectives/rank/rank_threads.h"

namespace collectives {

namespace {

// RankFailed puts the rank in front, and so do many texts.
std::string WithoutName(int rank, const std::string& what) {
  const std::string name = "rank " + std::to_string(rank) + " ";
  return what.starts_with(name) ? what.substr(name.size()) : what;
}

}  // namespace

void ProcessRunner::Connect(std::chrono::nanoseconds timeout) {
  if (options_.host.empty()) {
    options_.host = LocalAddressTowards(world_.address);
  }
  if (store_) return;
  store_ = Store::Connect(world_, timeout);
  serves_store_ = world_.rank == 0 && !world_.has_agent_store;
}

std::vector<Recorder> ProcessRunner::Run(const RunRanksOptions& options,
                                         const RankFunction& fn) {
  Validate(options, fn);
  if (options.ranks > world_.ranks) {
    throw InvalidArgument("this needs " + std::to_string(options.ranks) +
                          " ranks, and " + std::to_string(world_.ranks) +
                          " processes were started; start as many");
  }
  // Counted first: a run that fails to connect is one on every rank.
  const std::string prefix = "trainsys/" + std::to_string(world_.restarts) +
                             "/" + std::to_string(runs_++);
  Connect(options.timeout);
  if (world_.rank >= options.ranks) return {};
  const auto store = store_->WithPrefix(prefix);
  bool has_begun = false;
  const RankFunction begin = [&](Communicator& comm) {
    has_begun = true;
    fn(comm);
  };
  try {
    return RunAsRank(store,
                     {world_.rank, options.ranks, options.timeout, options_},
                     options.record_capacity, begin);
  } catch (const InvalidArgument&) {
    if (!has_begun) throw;  // the ranks' settings differ
    Fail(*store, options.ranks);
  } catch (...) {
    Fail(*store, options.ranks);
  }
}

void ProcessRunner::Fail(Store& store, int ranks) const {
  const auto error = std::current_exception();
  const FailureCause cause = CauseOf(world_.rank, error);
  if (serves_store_) Verdict::AwaitReaders(store, ranks);
  throw RankFailed(cause.rank, WithoutName(cause.rank, cause.what), error);
}

std::vector<Recorder> GlooThreadRunner::Run(const RunRanksOptions& options,
                                            const RankFunction& fn) {
  Validate(options, fn);
  C10dOptions own = options_;
  if (own.host.empty()) own.host = "127.0.0.1";
  const std::shared_ptr<Store> store = Store::InProcess();
  std::vector<Recorder> recorders;
  const auto run = [&](int rank) {
    auto records = RunAsRank(store, {rank, options.ranks, options.timeout, own},
                             options.record_capacity, fn);
    if (rank == 0) recorders = std::move(records);
  };
  RunThreads({options.ranks, run, {}, {}});
  return recorders;
}

}  // namespace collectives
