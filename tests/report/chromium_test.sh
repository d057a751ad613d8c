#!/usr/bin/env bash
# The one-page report in a browser: opens without a message, prints on one
# page, light and dark; its numbers are those of report.json. Without Chromium
# only the last, on the file as it was written.
set -u
write_page=$PWD/tests/report/write_page
numbers=$PWD/tests/report/page_numbers.py
cd "$TEST_TMPDIR" || exit 1
export HOME=$TEST_TMPDIR
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# browse FLAGS...: on the page, with a deadline; as root it has no sandbox.
browse() {
  timeout 60 "$chromium" --headless --no-sandbox --disable-gpu \
    --hide-scrollbars --user-data-dir="$TEST_TMPDIR/profile" \
    --window-size=1000,1600 "$@" "file://$TEST_TMPDIR/report.html"
}

"$write_page" . || fail "no page was written"
python3 "$numbers" report.html report.json || fail "the file's numbers"

chromium=$(command -v chromium || command -v chromium-browser ||
  command -v google-chrome)
if [ -z "$chromium" ]; then
  echo "Chromium is not installed: the page was not opened in a browser"
  exit $((failures > 0))
fi

browse --enable-logging=stderr --dump-dom >dom.html 2>messages ||
  fail "exit code $? for --dump-dom"
! grep CONSOLE messages || fail "messages on the console"
browse --print-to-pdf=report.pdf 2>err || fail "exit code $? for printing"
browse --blink-settings=preferredColorScheme=1 --screenshot=light.png \
  2>err || fail "exit code $? for a light screen"
browse --blink-settings=preferredColorScheme=0 --screenshot=dark.png \
  2>err || fail "exit code $? for a dark screen"
python3 "$numbers" dom.html report.json report.pdf light.png dark.png ||
  fail "the page in the browser"

"$write_page" . long || fail "no page of long texts was written"
browse --dump-dom >dom.html 2>err || fail "exit code $? for long texts"
browse --print-to-pdf=report.pdf 2>err || fail "exit code $? for printing them"
python3 "$numbers" dom.html report.json report.pdf ||
  fail "the page of long texts"
exit $((failures > 0))
