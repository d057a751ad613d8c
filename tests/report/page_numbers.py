"""Compares the figures of report.html with report.json.

    page_numbers.py PAGE.html REPORT.json [PRINTED.pdf] [LIGHT.png DARK.png]

PAGE.html may be the document as a browser holds it. Prints what is wrong, a
line each, and exits 1; else one line that counts what was compared.
"""

import html.parser
import json
import re
import struct
import sys
import zlib

NUMBER = re.compile(r"[0-9]")
# What the page says of itself, not of the run.
NAMES = re.compile(r"ZeRO-[12]|^[123] [A-Z]")
VOID = {"meta", "link", "br", "hr", "img"}


def at(report, path):
    for key in path.split("."):
        report = report[int(key)] if isinstance(report, list) else report[key]
    return report


def decimals(text):
    return len(text.partition(".")[2])


class Page(html.parser.HTMLParser):
    def __init__(self, report):
        super().__init__()
        self.report = report
        self.open = []  # [tag, attributes, text]
        self.wrong = []
        self.compared = 0

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append([tag, dict(attributes), ""])

    def handle_startendtag(self, tag, attributes):
        self.check(tag, dict(attributes), None)

    def handle_data(self, text):
        for element in self.open:
            element[2] += text
        tags = {element[0] for element in self.open}
        places = any("data-json" in element[1] for element in self.open)
        if places or tags & {"svg", "style", "head"} or not self.open:
            return
        left = NAMES.sub("", text)
        if NUMBER.search(left):
            self.wrong.append(f"a number without a place: '{text.strip()}'")

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.wrong.append(f"</{tag}> closes nothing")
            return
        self.check(*self.open.pop())

    def check(self, tag, attributes, text):
        path = attributes.get("data-json")
        if path is None:
            return
        self.compared += 1
        try:
            there = at(self.report, path)
        except (KeyError, IndexError, ValueError):
            self.wrong.append(f"{path} is not in the report")
            return
        if tag == "span":
            if text != (str(there) if there is not None else "none"):
                self.wrong.append(f"{path} is '{there}', not '{text}'")
            return
        value = float(attributes.get("value", attributes.get("data-value")))
        if value != there:
            self.wrong.append(f"{path} is {there}, not {value}")
        if tag != "data":
            said = [f"{value:.1f}", f"{value / 2**20:.1f}"]
            if text is None or not any(one in text for one in said):
                self.wrong.append(f"{path} is {there}, a point says '{text}'")
            return
        shown = text.replace(",", "")
        unit = float(attributes["data-unit"])
        half = 0.5000001 * 10 ** -decimals(shown)
        if abs(float(shown) - value / unit) > half:
            self.wrong.append(f"{path} is {there}, shown as {text} x {unit}")


def first_pixel(path):
    """Red, green and blue of a PNG's upper left corner."""
    with open(path, "rb") as file:
        data = file.read()
    packed, place = b"", 8
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place:place + 8])
        if kind == b"IDAT":
            packed += data[place + 8:place + 8 + size]
        place += 12 + size
    return zlib.decompress(packed)[1:4]


def main(page, report, pdf=None, light=None, dark=None):
    with open(report, encoding="utf-8") as file:
        checked = Page(json.load(file))
    with open(page, encoding="utf-8") as file:
        checked.feed(file.read())
    wrong = checked.wrong
    if checked.compared < 400:
        wrong.append(f"only {checked.compared} figures on the page")
    if pdf:
        with open(pdf, "rb") as file:
            pages = len(re.findall(rb"/Type\s*/Page\b", file.read()))
        if pages != 1:
            wrong.append(f"prints on {pages} pages, not on one")
    if light:
        if min(first_pixel(light)) < 200:
            wrong.append("a light screen gets a dark page")
        if max(first_pixel(dark)) > 80:
            wrong.append("a dark screen gets a light page")
    for line in wrong[:20]:
        print(line)
    print(f"{checked.compared} figures compared, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
