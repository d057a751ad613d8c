// libtorch comes without ThreadSanitizer's instrumentation, so its own locks
// are invisible and its hand-overs look like races. Our code, collectives/
// above all, has no suppression.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libtorch_cpu.so\n";
}
#endif
