// The errors of trainsys. Every exception that the project itself throws
// derives from Error, so one handler catches them all and nothing else.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace collectives {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's mistake: says what is wrong, what was expected, what to do.
// Thrown before anything is posted, on the calling rank only.
class InvalidArgument final : public Error {
 public:
  using Error::Error;
};

// The ranks' calls at one sequence number differ. Thrown on every rank, with
// the facts of all of them; no buffer was touched and the group stays usable.
class MismatchError final : public Error {
 public:
  using Error::Error;
};

// A collective found no match before the deadline. Names the missing ranks.
class TimeoutError final : public Error {
 public:
  using Error::Error;
};

// Another rank failed, left, or withdrew its call; says which and why.
class PeerFailed final : public Error {
 public:
  PeerFailed(int rank, const std::string& what) : Error(what), rank_(rank) {}

  // The rank that failed first.
  int rank() const { return rank_; }

 private:
  int rank_;
};

// Thrown by RunRanks: the first failure of a run and the rank it came from.
class RankFailed final : public Error {
 public:
  RankFailed(int rank, const std::string& what, std::exception_ptr cause)
      : Error("rank " + std::to_string(rank) + ": " + what),
        rank_(rank),
        cause_(std::move(cause)) {}

  int rank() const { return rank_; }
  // What the rank threw, with its own type.
  const std::exception_ptr& cause() const { return cause_; }

 private:
  int rank_;
  std::exception_ptr cause_;
};

}  // namespace collectives
