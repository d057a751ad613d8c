#!/usr/bin/env bash
# The program starts again once, with the same arguments and folder, when
# OpenBLAS was started with threads of its own; and not otherwise.
set -euo pipefail

probe=$PWD/$1
cd "${TEST_TMPDIR:-/tmp}"
folder=$(pwd -P)
unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS OMP_NUM_THREADS TRAINSYS_BLAS_CHOSEN

# run NAME=VALUE... : the probe's output under these variables, into $output
run() { output=$(env "$@" bash -c 'exec -a a\ name "$0" "two words" "" x' "$probe"); }
fail() {
  printf 'FAIL: %s\nthe output was:\n%s\n' "$1" "$output" >&2
  exit 1
}
# expect LINE WHAT
expect() { grep -qxF -- "$1" <<<"$output" || fail "$2: no line '$1'"; }
# expect_starts N WHAT
expect_starts() {
  local starts
  starts=$(grep -cx start <<<"$output")
  [ "$starts" = "$1" ] || fail "$2: $starts starts instead of $1"
}

run A=b
if grep -qx 'core=' <<<"$output"; then
  expect_starts 1 "without OpenBLAS nothing is to be gained"
  echo "no OpenBLAS here: only the plain start was tested"
  exit 0
fi
expect_starts 2 "OpenBLAS with its own threads"
expect OPENBLAS_NUM_THREADS=1 "one BLAS thread"
expect "fallback=0" "a kernel that fits the processor"
expect "argv0=a name" "argv[0] is kept"
expect "argv1=two words" "arguments are kept"
expect "argv2=" "empty arguments are kept"
expect "argv3=x" "arguments are kept"
expect "folder=$folder" "the working folder is kept"

run OPENBLAS_NUM_THREADS=4
expect_starts 2 "a larger number of BLAS threads"
expect OPENBLAS_NUM_THREADS=1 "one BLAS thread"

run OPENBLAS_NUM_THREADS=4 TRAINSYS_BLAS_CHOSEN=1
expect_starts 1 "once is enough"

run OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=1
expect_starts 1 "the user's core type is respected"
expect core=Prescott "the user's core type is respected"

run OPENBLAS_CORETYPE=Prescott
expect_starts 2 "the user's core type, threads unset"
expect core=Prescott "the user's core type is respected"
echo "all as expected"
