#include "tools/run_bench.h"

#include "trainsys/terminal/interrupt.h"

namespace trainsys {

void RunAndWrite(const std::function<void()>& run, Setting& setting,
                 OutputFile& file, const std::function<std::string()>& json) {
  try {
    run();
  } catch (const Interrupted&) {
    setting.is_interrupted = true;
    file.Write(json());
    throw;
  }
  file.Write(json());
}

std::function<void(int turn)> Watch(Progress& progress, const std::string& what,
                                    int turns) {
  return [&progress, what, turns](int turn) {
    ThrowIfInterrupted();
    progress.Show(what, turn + 1, turns + 1);  // the first one warms up
  };
}

}  // namespace trainsys
