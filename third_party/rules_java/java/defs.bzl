"""Bazel's built-in Java rules; @bazel_tools loads them, nothing here uses them."""

java_binary = native.java_binary
java_import = native.java_import
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
