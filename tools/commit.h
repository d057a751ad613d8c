// Which state of the sources a program was built from.
#pragma once

#include <string>

namespace trainsys {

// "383dfa8"; "383dfa8 and changes" where tracked files differ from it;
// "unknown" outside a checkout of git or without git. Asks git in the folder
// that `bazel run` was called in, else in the current one.
std::string CommitOfCheckout();

}  // namespace trainsys
