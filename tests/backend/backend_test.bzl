"""Tests that run over every backend, from one set of sources."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

def backend_test(name, srcs, deps = [], tags = [], gloo_tags = [], gloo_filter = "*", **kwargs):
    """Makes the test NAME, with ranks as threads, and NAME_gloo.

    Args:
      name: of the test.
      srcs: they include tests/backend/backend.h.
      deps: of the sources.
      tags: of both tests.
      gloo_tags: of NAME_gloo alone.
      gloo_filter: which cases NAME_gloo runs: Gloo takes a thousand times as
        long, and not every case asks it something new.
      **kwargs: of both tests.
    """
    cc_library(
        name = name + "_lib",
        testonly = True,
        srcs = srcs,
        alwayslink = True,
        deps = deps + [
            "//tests/backend",
            "@googletest//:main",
        ],
    )
    cc_test(
        name = name,
        tags = tags,
        deps = [
            ":" + name + "_lib",
            "//tests/backend:shm",
        ],
        **kwargs
    )

    # Gloo itself is not built with ThreadSanitizer.
    cc_test(
        name = name + "_gloo",
        args = ["--gtest_filter=" + gloo_filter],
        tags = tags + gloo_tags + ["no-tsan"],
        deps = [
            ":" + name + "_lib",
            "//tests/backend:gloo",
        ],
        **kwargs
    )
