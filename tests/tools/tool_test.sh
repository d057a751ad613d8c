# What the tests of the tools share. Sourced with the tool's path as argument,
# in the folder that Bazel starts a test in; goes on in the test's own.
set -u
tool=$PWD/$1
cd "$TEST_TMPDIR" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refuses WORDS FLAGS...: exit code 2, nothing on stdout, one line with WORDS.
refuses() {
  local words=$1 code
  shift
  "$tool" "$@" >out 2>err
  code=$?
  [ "$code" = 2 ] || fail "exit code $code for $*"
  [ ! -s out ] || fail "stdout for $*"
  [ "$(wc -l <err)" = 1 ] || fail "not one line for $*: $(cat err)"
  grep -qF -- "$words" err || fail "no '$words' for $*: $(cat err)"
}
