// What the benches do alike: progress, Ctrl-C, and the file that they write.
#pragma once

#include <functional>
#include <string>

#include "tools/output_file.h"
#include "tools/setting.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {

// Calls run(), then writes json() to `file`. Where run() is interrupted, the
// setting says so and what there is gets written before Interrupted goes on.
void RunAndWrite(const std::function<void()>& run, Setting& setting,
                 OutputFile& file, const std::function<std::string()>& json);

// For InterleavedMs: shows `what`, and leaves by Interrupted once there was a
// signal. Lifetime: `progress` outlives it.
std::function<void(int turn)> Watch(Progress& progress, const std::string& what,
                                    int turns);

}  // namespace trainsys
