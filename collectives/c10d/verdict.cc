#include "collectives/c10d/verdict.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/errors.h"

namespace collectives {
namespace {

constexpr std::chrono::milliseconds kSilence{1000};
constexpr std::chrono::milliseconds kStorePatience{5000};
constexpr std::chrono::milliseconds kReading{3000};
constexpr char kVerdictKey[] = "verdict";
constexpr char kClaimKey[] = "verdict/claim";

std::string NoteKey(int rank) { return "note/" + std::to_string(rank); }

std::string ToldKey(int rank) { return "told/" + std::to_string(rank); }

std::string WithdrawalText(int rank) {
  return "rank " + std::to_string(rank) +
         " withdrew its call while unwinding an exception";
}

// "<kind> <rank> <text>"
std::string ToText(const Failure& failure) {
  return std::to_string(static_cast<int>(failure.kind)) + " " +
         std::to_string(failure.rank) + " " + failure.what;
}

Failure FromText(const std::string& text) {
  const size_t rank = text.find(' ') + 1;
  const size_t what = text.find(' ', rank) + 1;
  return {static_cast<Failure::Kind>(std::stoi(text)),
          std::stoi(text.substr(rank)), false, text.substr(what)};
}

// Asks the store until `ask` has an answer or time is up.
template <typename Ask>
auto PollFor(std::chrono::nanoseconds time, Ask ask) {
  const int64_t deadline_ns = DeadlineAfter(time);
  auto answer = ask();
  while (!answer && NowNs() < deadline_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    answer = ask();
  }
  return answer;
}

std::optional<Failure> Published(Store& store) {
  const std::optional<std::string> text = store.TryGet(kVerdictKey);
  if (!text) return std::nullopt;
  return FromText(*text);
}

// The first to publish wins; the others take over what it says.
Failure Publish(Store& store, const Failure& failure) {
  if (store.Claim(kClaimKey)) {
    store.Set(kVerdictKey, ToText(failure));
    return failure;
  }
  return PollFor(kSilence, [&] { return Published(store); }).value_or(failure);
}

std::vector<int> Silent(Store& store, int ranks) {
  std::vector<int> silent;
  for (int r = 0; r < ranks; ++r) {
    if (!store.TryGet(NoteKey(r))) silent.push_back(r);
  }
  return silent;
}

// What to find out about a connection that has failed. Owns what it uses: it
// may outlive the one who waits for it.
struct Inquest {
  std::shared_ptr<Store> store;
  int rank;
  int ranks;
  std::chrono::nanoseconds timeout;
  LinkError error;
  std::string note;  // what this rank was doing

  Failure Hold() const {
    const Failure failure = Judge();
    store->Set(ToldKey(rank), "");
    return failure;
  }

 private:
  Failure Judge() const;
  Failure OfLost(int peer) const;
};

std::string LossText(const LinkError& error) {
  if (error.peer() == LinkError::kSomePeer) {
    return "a connection is lost: " + std::string(error.what());
  }
  return "the connection to rank " + std::to_string(error.peer()) + " is lost";
}

Failure Inquest::Judge() const {
  store->Set(NoteKey(rank), note);
  if (const auto known = PollFor(kSilence, [&] { return Published(*store); })) {
    return *known;
  }
  std::vector<int> silent = Silent(*store, ranks);
  const bool is_named = error.peer() != LinkError::kSomePeer;
  if (error.kind() == LinkError::Kind::kTimeout) {
    if (silent.empty()) silent.push_back(is_named ? error.peer() : rank);
    return Publish(*store, TimeoutOf(timeout, silent, ranks));
  }
  if (is_named) return Publish(*store, OfLost(error.peer()));
  if (!silent.empty()) return Publish(*store, OfLost(silent[0]));
  return Publish(*store,
                 {Failure::Kind::kPeer, rank, false,
                  "rank " + std::to_string(rank) + ": " + LossText(error)});
}

Failure Inquest::OfLost(int peer) const {
  const auto of_peer = [peer](const std::string& what) {
    return Failure{Failure::Kind::kPeer, peer, false, what};
  };
  const std::optional<std::string> last_word = store->TryGet(NoteKey(peer));
  if (!last_word) {
    return of_peer("rank " + std::to_string(peer) +
                   " is gone: its connection has closed and it has said "
                   "nothing for " +
                   TimeText(kSilence));
  }
  if (*last_word == WithdrawalText(peer)) return of_peer(*last_word);
  // It has been cut off by another failure, and who saw that may still be
  // listening for the silent.
  const auto known =
      PollFor(kSilence + kSilence / 2, [&] { return Published(*store); });
  return known ? *known
               : of_peer(LossText(error) + "; it was at " + *last_word);
}

// A store's own failure is a verdict too, and names `suspect`. `fn` may outlive
// this call.
Failure WithPatience(const std::shared_ptr<Store>& store,
                     const std::string& lost, int suspect,
                     std::function<Failure()> fn) {
  const auto result = std::make_shared<std::optional<Failure>>();
  std::string why = "its store does not answer";
  try {
    if (RunWithDeadline(kStorePatience, [=] { *result = fn(); })) {
      return **result;
    }
  } catch (const std::exception& e) {
    why = e.what();
  }
  return {Failure::Kind::kPeer, suspect, false,
          lost + "; " + why + ", so " + store->host() +
              ", which serves the store, is probably what failed"};
}

}  // namespace

Failure Verdict::Announce(const FailureCause& cause) {
  const std::string what =
      "rank " + std::to_string(cause.rank) + " failed: " + cause.what;
  const Failure failure{Failure::Kind::kPeer, cause.rank, false, what};
  WithPatience(
      store_, what, rank_,
      [store = store_, failure, key = NoteKey(rank_), told = ToldKey(rank_)] {
        store->Set(key, failure.what);
        Publish(*store, failure);
        store->Set(told, "");
        return failure;
      });
  return failure;
}

Failure Verdict::Withdraw() {
  const std::string what = WithdrawalText(rank_);
  const Failure failure{Failure::Kind::kPeer, rank_, true, what};
  WithPatience(store_, what, rank_,
               [store = store_, failure, key = NoteKey(rank_)] {
                 store->Set(key, failure.what);
                 return failure;
               });
  return failure;
}

Failure Verdict::Find(const LinkError& error, const Standing& standing) {
  const std::string note = standing.channel + " #" +
                           std::to_string(standing.sequence) + " " +
                           standing.call;
  const Inquest inquest{store_, rank_, ranks_, timeout_, error, note};
  const int suspect =
      error.peer() == LinkError::kSomePeer ? rank_ : error.peer();
  return WithPatience(store_, LossText(error), suspect,
                      [inquest] { return inquest.Hold(); });
}

void Verdict::AwaitReaders(Store& store, int ranks) {
  PollFor(kReading, [&] {
    for (int r = 0; r < ranks; ++r) {
      if (!store.TryGet(ToldKey(r))) return false;
    }
    return true;
  });
}

}  // namespace collectives
