#include <exception>

#include "trainsys/checks/checks.h"

namespace trainsys {
namespace {

CheckResult RunGuarded(const Check& check, const CheckOptions& options,
                       collectives::RankRunner& runner) {
  try {
    return check.run(options, runner);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    // libtorch's messages go on with a stack trace.
    return {check.name, false, {what.substr(0, what.find('\n'))}, {}};
  }
}

}  // namespace

CheckResult RunCheck(const Check& check, const CheckOptions& options,
                     collectives::RankRunner& runner) {
  CheckResult result = RunGuarded(check, options, runner);
  if (options.mine == nullptr) return result;
  result.name = check.name_of_mine;
  if (!result.has_passed) {
    result.lines.push_back(std::string("read ") + check.reading);
  }
  return result;
}

}  // namespace trainsys
