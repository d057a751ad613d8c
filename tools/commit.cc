#include "tools/commit.h"

#include <cstdlib>

#include "tools/collective_bench/shell.h"

namespace trainsys {
namespace {

constexpr int kSeconds = 10;

}  // namespace

std::string CommitOfCheckout() {
  const char* folder = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string git = "git -C " + Quoted(folder ? folder : ".") + " ";
  const Outcome head = RunShell(git + "rev-parse --short HEAD", kSeconds);
  if (head.code != 0) return "unknown";
  const Outcome status =
      RunShell(git + "status --porcelain --untracked-files=no", kSeconds);
  const bool is_clean = status.code == 0 && status.output.empty();
  return FirstLineOf(head.output) + (is_clean ? "" : " and changes");
}

}  // namespace trainsys
