#!/usr/bin/env bash
# Runs the Python program that is named, from the folder that Bazel starts a
# test in. -B: nothing is written beside the sources.
exec python3 -B "$@"
