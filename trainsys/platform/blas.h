#pragma once

#include <string>
#include <string_view>

namespace trainsys {

// Which matrix kernels this process computes with, and how to get good ones.
//
// OpenBLAS chooses its kernel when it is loaded. An older one takes a processor
// that it does not know for a Prescott of 2004 and computes at a third or less
// of the speed; it also starts its own threads, which are in the way where the
// ranks are threads. Both are settled by the environment before the start only:
//
//     int main(int argc, char** argv) {
//       trainsys::ReexecWithFastBlas(argv);  // first of all
//       trainsys::UseOneBlasThread();

struct BlasKernel {
  std::string library;       // "OpenBLAS 0.3.21", or "unknown BLAS"
  std::string core;          // "Zen", "Prescott", ...; empty where unknown
  bool is_fallback = false;  // the processor could do much better
};

// Threads: any thread.
BlasKernel DetectBlas();

// For headers of measurements: "OpenBLAS 0.3.21, kernel Zen".
std::string Describe(const BlasKernel& kernel);

// Gives BLAS and libtorch's element-wise operations one thread each. The
// second holds for the calling thread and for threads that have not used
// libtorch yet.
void UseOneBlasThread();

// Starts the program again, once, with the same arguments and working folder,
// if OpenBLAS is in use and its kernel does not fit the processor or it was
// started with threads of its own. An OPENBLAS_CORETYPE that the user has set
// is respected. Returns where nothing is to be gained.
//
// Call: first in main, before any thread and any output.
// Environment set: OPENBLAS_CORETYPE, OPENBLAS_NUM_THREADS=1, and
// TRAINSYS_BLAS_CHOSEN=1, which keeps it from happening twice.
void ReexecWithFastBlas(char** argv);

struct CpuFeatures {
  bool has_avx2_fma = false;
  bool has_avx512 = false;  // f, bw, dq and vl: what SkylakeX kernels use
};

// The OPENBLAS_CORETYPE for a processor on which OpenBLAS chose `core`; empty
// where that choice is good enough. Pure.
std::string BetterCoreType(std::string_view core, const CpuFeatures& cpu);

}  // namespace trainsys
