// libtorch comes without ThreadSanitizer's instrumentation, so its own locks
// are invisible and its hand-overs look like races. The suppression covers any
// stack with a frame of libtorch, hence also what backward() calls back; the
// tests of collectives/ link no libtorch and suppress nothing.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libtorch_cpu.so\n";
}
#endif
