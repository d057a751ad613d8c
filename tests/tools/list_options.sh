#!/usr/bin/env bash
# list_options.sh FOLDER: every flag of every tool in it, as --help shows it.
set -eu

# flags_of TOOL...: with what is in front of a flag, the tool and its command.
flags_of() {
  "$@" --help | awk -v tool="${*/#*\//}" '
    function flush() { if (entry != "") print tool, entry; entry = "" }
    /^  -/ { flush(); sub(/^  /, ""); sub(/   *.*/, ""); entry = $0; next }
    /^      [^ ]/ && entry != "" {
      sub(/^ */, ""); entry = entry (entry ~ /,$/ ? "" : " ") $0; next
    }
    { flush() }
    END { flush() }'
}

for tool in "$1"/*; do
  case ${tool##*/} in *.so | *.a | *.params | *_bare | *.runfiles*) continue ;; esac
  [ -f "$tool" ] && [ -x "$tool" ] && [ "$(head -c 4 "$tool")" = $'\x7fELF' ] ||
    continue
  flags_of "$tool"
  commands=$("$tool" --help | awk '/^Subcommands:/ { on = 1; next }
    on && /^  [a-z]/ { print $1 }')
  for command in $commands; do flags_of "$tool" "$command"; done
done
