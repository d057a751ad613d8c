#include "collectives/rank/failure.h"

#include "collectives/errors.h"

namespace collectives {

Failure TimeoutOf(std::chrono::nanoseconds timeout,
                  const std::vector<int>& missing, int ranks) {
  return {Failure::Kind::kTimeout, missing[0], false,
          "timed out after " + TimeText(timeout) + " waiting for " +
              RankList(missing) + " of " + std::to_string(ranks)};
}

void Throw(const Failure& failure, const std::string& channel,
           uint64_t sequence, const Call& call) {
  const std::string what = failure.what + " (channel '" + channel + "' #" +
                           std::to_string(sequence) + ", " + Describe(call) +
                           ")";
  switch (failure.kind) {
    case Failure::Kind::kMismatch:
      throw MismatchError(what);
    case Failure::Kind::kTimeout:
      throw TimeoutError(what);
    case Failure::Kind::kPeer:
      break;
  }
  throw PeerFailed(failure.rank, what);
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (int r : ranks) text += " " + std::to_string(r);
  return text;
}

std::string TimeText(std::chrono::nanoseconds time) {
  const double ms = static_cast<double>(time.count()) / 1e6;
  std::string number = std::to_string(ms < 1000 ? ms : ms / 1000);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number + (ms < 1000 ? " ms" : " s");
}

}  // namespace collectives
