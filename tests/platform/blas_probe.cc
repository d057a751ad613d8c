// Prints what ReexecWithFastBlas left of the process: one `key=value` a line.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "trainsys/platform/blas.h"

namespace {

void PrintVariable(const char* name) {
  const char* value = std::getenv(name);
  std::printf("%s=%s\n", name, value != nullptr ? value : "");
}

}  // namespace

int main(int argc, char** argv) {
  // Every start says so, unbuffered, before it may be replaced.
  if (write(STDOUT_FILENO, "start\n", 6) != 6) return 1;
  trainsys::ReexecWithFastBlas(argv);
  const trainsys::BlasKernel kernel = trainsys::DetectBlas();
  std::printf("library=%s\n", kernel.library.c_str());
  std::printf("core=%s\n", kernel.core.c_str());
  std::printf("fallback=%d\n", kernel.is_fallback ? 1 : 0);
  PrintVariable("OPENBLAS_CORETYPE");
  PrintVariable("OPENBLAS_NUM_THREADS");
  PrintVariable("PWD");
  for (int i = 0; i < argc; ++i) std::printf("argv%d=%s\n", i, argv[i]);
  char folder[4096];
  if (getcwd(folder, sizeof(folder)) == nullptr) return 1;
  std::printf("folder=%s\n", folder);
  return 0;
}
