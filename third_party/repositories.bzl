"""The repositories that trainsys needs: one call for its own WORKSPACE and for
every workspace that depends on it.
"""

load("//third_party:system_libs.bzl", "libtorch_repository", "system_library")

def trainsys_repositories(path = ""):
    """Declares them. A name that the workspace has declared already stays.

    Args:
      path: of trainsys, relative to the workspace or absolute, with a slash at
        the end; empty in trainsys itself.
    """

    # Bazel itself asks for these three; the small stand-ins keep it offline.
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        _once(native.local_repository, name, path = path + "third_party/" + name)
    _once(libtorch_repository, "libtorch")
    _once(
        system_library,
        "gloo",
        header_dirs = {"gloo": "gloo"},
        linkopts = ["-lgloo"],
        package = "libgloo-dev",
    )
    _once(
        system_library,
        "tbb",
        header_dirs = {
            "oneapi": "oneapi",
            "tbb": "tbb",
        },
        linkopts = ["-ltbb"],
        package = "libtbb-dev",
    )

    # EIGEN_FAST_MATH=0: Eigen's packet square root is otherwise an
    # approximation, whose vector body and scalar tail round differently.
    _once(
        system_library,
        "eigen",
        defines = ["EIGEN_FAST_MATH=0"],
        header_dirs = {"eigen3/Eigen": "Eigen"},
        package = "libeigen3-dev",
    )
    _once(
        system_library,
        "googletest",
        header_dirs = {
            "gmock": "gmock",
            "gtest": "gtest",
        },
        linkopts = [
            "-lgmock",
            "-lgtest",
            "-lpthread",
        ],
        main_linkopts = ["-lgmock_main"],
        package = "libgtest-dev libgmock-dev",
    )
    _once(
        system_library,
        "google_benchmark",
        header_dirs = {"benchmark": "benchmark"},
        linkopts = [
            "-lbenchmark",
            "-lpthread",
        ],
        main_linkopts = ["-lbenchmark_main"],
        package = "libbenchmark-dev",
    )
    _once(
        system_library,
        "fmt",
        header_dirs = {"fmt": "fmt"},
        linkopts = ["-lfmt"],
        package = "libfmt-dev",
    )
    _once(
        system_library,
        "relacy",
        header_dirs = {"relacy": "relacy"},
        package = "relacy-dev",
    )
    _once(
        system_library,
        "cli11",
        header_dirs = {"CLI": "CLI"},
        package = "libcli11-dev",
    )
    _once(
        system_library,
        "nlohmann_json",
        header_dirs = {"nlohmann": "nlohmann"},
        package = "nlohmann-json3-dev",
    )

def _once(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)
