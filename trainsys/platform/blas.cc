#include "trainsys/platform/blas.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trainsys {
namespace {

constexpr char kOnce[] = "TRAINSYS_BLAS_CHOSEN";

// OpenBLAS is asked by name at run time: the program links libblas, whichever
// library the system has put behind that name.
template <typename Function>
Function* Find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

std::string Ask(const char* name) {
  auto* function = Find<char*()>(name);
  return function != nullptr ? function() : "";
}

CpuFeatures ThisCpu() {
  CpuFeatures cpu;
  cpu.has_avx2_fma =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cpu.has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return cpu;
}

// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." -> "OpenBLAS 0.3.21"
std::string FirstTwoWords(const std::string& text) {
  const size_t space = text.find(' ');
  return text.substr(
      0, space == std::string::npos ? space : text.find(' ', space + 1));
}

bool IsSet(const char* variable, std::string_view value) {
  const char* now = std::getenv(variable);
  return now != nullptr && now == value;
}

}  // namespace

std::string BetterCoreType(std::string_view core, const CpuFeatures& cpu) {
  // Kernels without AVX2. Named one by one, so that one which a newer OpenBLAS
  // adds is trusted.
  constexpr std::array<std::string_view, 18> kOld = {
      "Katmai", "Coppermine",  "Northwood",    "Prescott",   "Banias",
      "Atom",   "Core2",       "Penryn",       "Dunnington", "Nehalem",
      "Athlon", "Opteron",     "Opteron_SSE3", "Barcelona",  "Bobcat",
      "Nano",   "Sandybridge", "Generic"};
  if (std::find(kOld.begin(), kOld.end(), core) == kOld.end()) return "";
  if (cpu.has_avx512) return "SkylakeX";
  if (cpu.has_avx2_fma) return "Haswell";
  return "";
}

BlasKernel DetectBlas() {
  BlasKernel kernel;
  kernel.library = FirstTwoWords(Ask("openblas_get_config"));
  kernel.core = Ask("openblas_get_corename");
  kernel.is_fallback = !BetterCoreType(kernel.core, ThisCpu()).empty();
  if (kernel.library.empty()) kernel.library = "unknown BLAS";
  return kernel;
}

std::string Describe(const BlasKernel& kernel) {
  if (kernel.core.empty()) return kernel.library;
  return kernel.library + ", kernel " + kernel.core +
         (kernel.is_fallback ? " (slow on this processor)" : "");
}

void UseOneBlasThread() {
  if (auto* set = Find<void(int)>("openblas_set_num_threads")) set(1);
  at::set_num_threads(1);
}

void ReexecWithFastBlas(char** argv) {
  const BlasKernel kernel = DetectBlas();
  if (kernel.core.empty() || std::getenv(kOnce) != nullptr) return;
  const bool wants_core =
      kernel.is_fallback && std::getenv("OPENBLAS_CORETYPE") == nullptr;
  if (!wants_core && IsSet("OPENBLAS_NUM_THREADS", "1")) return;
  if (wants_core) {
    const std::string core = BetterCoreType(kernel.core, ThisCpu());
    setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
  }
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  setenv(kOnce, "1", 1);
  execv("/proc/self/exe", argv);
  // Where that is impossible the program goes on, slower but right.
}

}  // namespace trainsys
