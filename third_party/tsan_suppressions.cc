// libtorch, and the oneDNN it calls, come uninstrumented, so that their locks
// are invisible and their hand-overs look like races. A suppression covers any
// stack with a frame of theirs, hence also what backward() calls back; the
// tests of collectives/ link no libtorch and suppress nothing.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libtorch_cpu.so\nrace:libdnnl.so\n";
}
#endif
