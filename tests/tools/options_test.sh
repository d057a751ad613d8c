#!/usr/bin/env bash
# The flags of all tools are those of options.txt; --help fits 80 columns; what
# --print-config prints, --config takes.
set -u
. tests/tools/tool_test.sh tools
here=${tool%/tools}

"$here/tests/tools/list_options.sh" "$tool" >list || fail "no list: exit code $?"
[ -s list ] || fail "the list is empty"
diff "$here/tests/tools/options.txt" list || fail "The flags above changed. \
Names and defaults are what people's scripts rely on. If they are meant to
change: bazel build //tools:all && \
tests/tools/list_options.sh bazel-bin/tools >tests/tools/options.txt"

# check TOOL [COMMAND FLAGS...]: what a run must have.
check() {
  local name=$1
  shift
  "$tool/$name" "$@" --help >help || fail "$name --help"
  awk -v name="$name" 'length > 80 { print name ": " $0; long = 1 }
    END { exit long }' help || fail "--help of $name is wider than 80 columns"
  "$tool/$name" "$@" --print-config >printed 2>err ||
    fail "$name --print-config: $(cat err)"
  "$tool/$name" --config printed --print-config 2>err | diff printed - ||
    fail "$name --config: $(cat err)"
  echo '{"no-such-flag": 1}' >wrong
  "$tool/$name" --config wrong >out 2>err
  code=$?
  [ "$code" = 2 ] || fail "exit code $code of $name for an unknown key"
  grep -q "no-such-flag" err || fail "$name: $(cat err)"
}

checked=0
for path in $(cut -d ' ' -f 1 list | uniq); do
  case $path in
    plan)
      check plan memory --model llama3-8b
      check plan shards --model llama3-8b
      ;;
    report) check report --out there ;;
    *) check "$path" ;;
  esac
  checked=$((checked + 1))
done
echo "$checked tools"
[ "$checked" -ge 10 ] || fail "only $checked tools were checked"

# The command line wins over the file.
echo '{"ranks": 3, "zero": 2}' >flags
"$tool/emulate" --config flags --ranks 5 --print-config >out
grep -q '"ranks": 5' out || fail "--ranks does not win: $(cat out)"
grep -q '"zero": 2' out || fail "the file does not count: $(cat out)"

[ "$failures" = 0 ]
