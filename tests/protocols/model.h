// Running a protocol through Relacy; see relacy_primitives.h.
//
// WEAKEN=FILE:LINE:NTH:FROM:TO weakens one memory order in every test but the
// planted ones (tools/mutate_orders).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "collectives/sync/primitives.h"

namespace collectives {

// So long that nobody gives up.
inline constexpr std::chrono::hours kEver{1};

// Memory that is not atomic: a race on it is an error.
template <typename T>
class Plain {
 public:
  Plain(T value = T{}) : value_(value) {}
  Plain(const Plain& other) : value_(T(other)) {}
  Plain& operator=(const Plain& other) { return *this = T(other); }
  Plain& operator=(T value) {
    value_(RL_INFO).store(value);
    return *this;
  }
  operator T() const { return value_(RL_INFO).load(); }

 private:
  rl::var<T> value_;
};

// "memory_order_acquire" without its first half.
std::optional<rl::memory_order> OrderNamed(const std::string& name);
// Null without WEAKEN.
sync::Weakening* WeakeningAskedFor();

template <typename Suite>
std::string FirstError(rl::scheduler_type_e search, int switches) {
  rl::ostringstream log;  // Relacy has its own operator new while it runs
  rl::test_params params;
  params.search_type = search;
  params.context_bound = static_cast<unsigned>(switches);
  params.iteration_count = 20'000;  // of a random search
  params.output_stream = &log;
  params.progress_stream = &log;
  if (rl::simulate<Suite>(params)) {
    std::cout << params.stop_iteration << " schedules of "
              << Suite::params::thread_count << " threads\n";
    return "";
  }
  return log.str().c_str();
}

// Every schedule with at most `switches` of a thread that could have gone on,
// then 20,000 random ones.
template <typename Suite>
std::string FirstError(int switches) {
  const std::string error =
      FirstError<Suite>(rl::fair_context_bound_scheduler_type, switches);
  if (!error.empty()) return error;
  return FirstError<Suite>(rl::random_scheduler_type, 0);
}

template <typename Suite>
void ExpectNoError(int switches) {
  sync::weakening = WeakeningAskedFor();
  EXPECT_EQ(FirstError<Suite>(switches), "");
  sync::weakening = nullptr;
}

// Where even few switches leave too many schedules.
template <typename Suite>
void ExpectNoErrorAtRandom() {
  sync::weakening = WeakeningAskedFor();
  EXPECT_EQ(FirstError<Suite>(rl::random_scheduler_type, 0), "");
  sync::weakening = nullptr;
}

// A test of the test: with all orders `from` of `file` weakened to `to`.
template <typename Suite>
void ExpectErrorWhere(const std::string& file, rl::memory_order from,
                      rl::memory_order to, int switches) {
  sync::Weakening planted{file, 0, 0, from, to};
  sync::weakening = &planted;
  EXPECT_NE(FirstError<Suite>(switches), "") << file;
  sync::weakening = nullptr;
  EXPECT_GT(planted.uses, 0) << file;
}

}  // namespace collectives
