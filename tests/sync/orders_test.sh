#!/usr/bin/env bash
# Each memory order of collectives/ that is stronger than relaxed has a comment
# directly above its statement: its letter, the order, and the letter that it
# pairs with, which stands in the same place or its header. No memory order
# stands outside sync/.
set -u

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# complaints FOLDER: one line for each broken rule in the sources below it.
complaints() {
  find -L "$1" -name '*.h' -o -name '*.cc' | sort | while read -r file; do
    case $file in
      */sync/*) uncommented "$file" ;;
      *) grep -HnE 'memory_order(_|::)' "$file" |
        sed 's/$/  <- outside its folders/' ;;
    esac
  done
}

uncommented() {
  awk -v file="$1" '
    function end_statement() { comment = ""; is_open = 0 }
    # Of the statement so far: the last comment before it.
    /^ *\/\// {
      if (is_open) end_statement()
      comment = comment " " $0
      next
    }
    { code = $0; sub(/\/\/.*/, "", code) }
    code ~ /^ *using / { next }
    code ~ /^ *$/ { end_statement(); next }
    {
      is_open = 1
      while (match(code, /memory_order(_|::)(acquire|release|acq_rel|seq_cst)/)) {
        order = substr(code, RSTART + 13, RLENGTH - 13)
        sub(/^:/, "", order)
        code = substr(code, RSTART + RLENGTH)
        wanted = "\\([A-Z]\\) " order ", pairs with (itself|\\([A-Z]\\))"
        if (comment !~ wanted) {
          print file ":" NR ": " order " without \"(X) " order \
                ", pairs with (Y)\" above it"
        }
      }
      if ($0 ~ /[;{}] *(\/\/.*)?$/) { is_open = 2 }
    }
    is_open == 2 { end_statement() }
  ' "$1"
  unpaired "$1"
}

# Partners that are the letter of nothing, in this file or its header.
unpaired() {
  local header=${1%.*}.h source=${1%.*}.cc letter
  grep -ohE 'pairs with (\([A-Z]\)( and )?)+' "$1" | grep -oE '\([A-Z]\)' |
    sort -u | while read -r letter; do
    cat "$header" "$source" 2>/dev/null |
      grep -qF -- "// $letter " || echo "$1: nothing is $letter"
  done
}

found=$(complaints collectives)
[ -z "$found" ] || fail "memory orders:
$found"
[ "$(grep -Rh 'memory_order_' collectives/sync | wc -l)" -gt 20 ] ||
  fail "no memory orders found at all"

# A test of the test.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir "$made/sync" "$made/record"

# expect TEXT CODE: CODE in sync/ has a complaint with TEXT, or none.
expect() {
  printf '%s\n' "$2" >"$made/sync/made.h"
  found=$(complaints "$made/sync")
  if [ -z "$1" ]; then
    [ -z "$found" ] || fail "complains about '$2': $found"
  else
    case $found in
      *"$1"*) ;;
      *) fail "says '$found' of '$2', not '$1'" ;;
    esac
  fi
}

good='// (A) release, pairs with (B): publishes the value.
value_.store(1, sync::memory_order_release);
// (B) acquire, pairs with (A).
value_.load(
    sync::memory_order_acquire);'
expect "" "$good"
expect "" 'value_.load(sync::memory_order_relaxed);'
expect "release without" 'value_.store(1, sync::memory_order_release);'
expect "release without" "$good
value_.store(2, sync::memory_order_release);"
expect "acquire without" '// (A) release, pairs with itself.
value_.load(sync::memory_order_acquire);'
expect "acq_rel without" '// (A) acq_rel: publishes.
value_.fetch_add(1, std::memory_order::acq_rel);'
expect "nothing is (B)" '// (A) release, pairs with (B).
value_.store(1, sync::memory_order_release);'
echo 'value_.load(std::memory_order_relaxed);' >"$made/record/made.cc"
case $(complaints "$made/record") in
  *"outside its folders"*) ;;
  *) fail "an order in record/ passes" ;;
esac
echo passed
