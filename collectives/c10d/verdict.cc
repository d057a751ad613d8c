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
constexpr char kVerdictKey[] = "verdict";
constexpr char kClaimKey[] = "verdict/claim";

std::string NoteKey(int rank) { return "note/" + std::to_string(rank); }

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

// A store's own failure is a verdict too.
Failure StoreIsGone(const Store& store, const std::string& lost,
                    const std::string& why) {
  return {Failure::Kind::kPeer, 0, false,
          lost + "; " + why + ", so " + store.host() +
              ", which serves the store, is probably what failed"};
}

// `fn` may outlive this call: it owns what it uses.
Failure WithPatience(const std::shared_ptr<Store>& store,
                     const std::string& lost, std::function<Failure()> fn) {
  const auto result = std::make_shared<std::optional<Failure>>();
  try {
    if (RunWithDeadline(kStorePatience, [=] { *result = fn(); })) {
      return **result;
    }
    return StoreIsGone(*store, lost, "its store does not answer");
  } catch (const Error& e) {
    return StoreIsGone(*store, lost, e.what());
  }
}

}  // namespace

Failure Verdict::Announce(const FailureCause& cause) {
  const std::string what =
      "rank " + std::to_string(cause.rank) + " failed: " + cause.what;
  const Failure failure{Failure::Kind::kPeer, cause.rank, false, what};
  WithPatience(store_, what, [store = store_, failure, key = NoteKey(rank_)] {
    store->Set(key, failure.what);
    return Publish(*store, failure);
  });
  return failure;
}

Failure Verdict::Withdraw() {
  const std::string what = WithdrawalText(rank_);
  const Failure failure{Failure::Kind::kPeer, rank_, true, what};
  WithPatience(store_, what, [store = store_, failure, key = NoteKey(rank_)] {
    store->Set(key, failure.what);
    return failure;
  });
  return failure;
}

Failure Verdict::Find(const LinkError& error, const Standing& standing) {
  const bool is_late = error.kind() == LinkError::Kind::kTimeout;
  const int peer = error.peer();
  const std::string name = "rank " + std::to_string(peer);
  const std::string lost =
      is_late ? "timed out after " + TimeText(timeout_) + " waiting for " + name
              : "the connection to " + name + " is lost";
  const std::string note = standing.channel + " #" +
                           std::to_string(standing.sequence) + " " +
                           standing.call;
  return WithPatience(
      store_, lost,
      [=, store = store_, rank = rank_, ranks = ranks_, timeout = timeout_] {
        store->Set(NoteKey(rank), note);
        if (const auto known =
                PollFor(kSilence, [&] { return Published(*store); })) {
          return *known;
        }
        if (is_late) {
          std::vector<int> missing = Silent(*store, ranks);
          if (missing.empty()) missing.push_back(peer);
          return Publish(*store, TimeoutOf(timeout, missing, ranks));
        }
        const std::optional<std::string> last_word =
            store->TryGet(NoteKey(peer));
        std::string what =
            name +
            " is gone: its connection has closed and it has said "
            "nothing for " +
            TimeText(kSilence);
        if (last_word && *last_word == WithdrawalText(peer)) {
          what = *last_word;
        } else if (last_word) {
          // It has been cut off by another failure, and who saw that may still
          // be listening for the silent.
          if (const auto known = PollFor(kSilence + kSilence / 2,
                                         [&] { return Published(*store); })) {
            return *known;
          }
          what = lost + "; it was at " + *last_word;
        }
        return Publish(*store, {Failure::Kind::kPeer, peer, false, what});
      });
}

}  // namespace collectives
