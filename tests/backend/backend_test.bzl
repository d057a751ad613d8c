"""Tests that run over every backend, from one set of sources."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

def backend_test(name, srcs, deps = [], tags = [], gloo_tags = [], **kwargs):
    """Makes the test NAME, with ranks as threads, and NAME_gloo."""
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
        tags = tags + gloo_tags + ["no-tsan"],
        deps = [
            ":" + name + "_lib",
            "//tests/backend:gloo",
        ],
        **kwargs
    )
