"""Repositories for libraries that are installed already. Nothing is downloaded.

system_library finds one in the system's include folders; libtorch_repository
takes the tree that LIBTORCH names, or else the system's.

Headers are handed on as whole directories: one symlink instead of thousands of
files, which the sandbox would otherwise set up for each compilation.
"""

def _include_roots(ctx):
    roots = ["/usr/include", "/usr/local/include"]
    multiarch = ctx.execute(["cc", "-print-multiarch"])
    if multiarch.return_code == 0 and multiarch.stdout.strip():
        roots.append("/usr/include/" + multiarch.stdout.strip())
    return roots

def _link_directory(ctx, source, roots, target, advice):
    for root in roots:
        path = ctx.path(root + "/" + source)
        if path.exists:
            ctx.symlink(path, target)
            return target
    fail("%s: no %s in %s: %s" % (ctx.name, source, ", ".join(roots), advice))

_LIBRARY = """
cc_library(
    name = "{name}",
    hdrs = {hdrs},
    defines = {defines},
    includes = {includes},
    linkopts = {linkopts},
    deps = {deps},
)
"""

def _library(name, hdrs = [], defines = [], includes = [], linkopts = [], deps = []):
    return _LIBRARY.format(
        name = name,
        hdrs = hdrs,
        defines = defines,
        includes = includes,
        linkopts = linkopts,
        deps = deps,
    )

def _write_build(ctx, libraries):
    ctx.file("BUILD", "\n".join([
        'load("@rules_cc//cc:defs.bzl", "cc_library")',
        'package(default_visibility = ["//visibility:public"])',
    ] + libraries))

def _system_library_impl(ctx):
    roots = _include_roots(ctx)
    advice = "run ./setup.sh (it installs %s)" % ctx.attr.package
    hdrs = [
        _link_directory(ctx, source, roots, "include/" + target, advice)
        for source, target in ctx.attr.header_dirs.items()
    ]
    libraries = [_library(
        ctx.name,
        hdrs = hdrs,
        defines = ctx.attr.defines,
        includes = ["include"],
        linkopts = ctx.attr.linkopts,
    )]
    if ctx.attr.main_linkopts:
        libraries.append(_library(
            "main",
            linkopts = ctx.attr.main_linkopts,
            deps = [":" + ctx.name],
        ))
    _write_build(ctx, libraries)

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "defines": attr.string_list(),
        "header_dirs": attr.string_dict(
            doc = "Path below the system's include folder -> path to include by.",
            mandatory = True,
        ),
        "linkopts": attr.string_list(),
        "main_linkopts": attr.string_list(
            doc = "If given, ':main' is the library with a main() of its own.",
        ),
        "package": attr.string(mandatory = True),
    },
    local = True,
)

def _libtorch_tree(ctx, home):
    """Headers, link options and defines of an unpacked libtorch."""
    if not home.startswith("/") or not ctx.path(home + "/include/torch").exists:
        fail(("LIBTORCH=%s is not an absolute path with include/torch below " +
              "it: name the folder of an unpacked libtorch (the one with " +
              "include/ and lib/), or unset LIBTORCH for the system's") % home)
    ctx.symlink(ctx.path(home + "/include"), "include")
    lib = home + "/lib"
    linkopts = ["-L" + lib, "-Wl,-rpath," + lib]
    if not ctx.path(lib + "/libtorch_cuda.so").exists:
        return ["include"], linkopts, []

    # Built with CUDA, and so with NCCL.
    return ["include"], linkopts + ["-ltorch_cuda", "-lc10_cuda"], ["USE_C10D_NCCL"]

def _libtorch_system(ctx):
    """Headers, link options and defines of Debian's libtorch-dev."""
    advice = "run ./setup.sh (it installs libtorch-dev), or set LIBTORCH to " + \
             "the folder of an unpacked libtorch"
    roots = _include_roots(ctx)
    hdrs = [
        _link_directory(ctx, d, roots, "include/" + d, advice)
        for d in ["ATen", "c10", "caffe2", "torch"]
    ]

    # Debian 12's logs through glog.
    has_glog = any([ctx.path(root + "/glog/logging.h").exists for root in roots])
    return hdrs, ["-lglog"] if has_glog else [], []

def _libtorch_repository_impl(ctx):
    home = ctx.os.environ.get("LIBTORCH", "").rstrip("/")
    hdrs, linkopts, defines = _libtorch_tree(ctx, home) if home else _libtorch_system(ctx)
    _write_build(ctx, [_library(
        "libtorch",
        hdrs = hdrs,
        # PER_OPERATOR_HEADERS halves what libtorch's own headers pull in.
        defines = [
            "AT_PER_OPERATOR_HEADERS",
            "USE_C10D_GLOO",
            "USE_DISTRIBUTED",
        ] + defines,
        includes = ["include", "include/torch/csrc/api/include"],
        linkopts = linkopts + ["-ltorch", "-ltorch_cpu", "-lc10"],
        deps = ["@trainsys//third_party:tsan_suppressions"],
    )])

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    configure = True,
    environ = ["LIBTORCH"],
    local = True,
)
