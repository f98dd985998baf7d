#!/usr/bin/env python3
"""Draws the CSV of soak.py as an SVG with one chart for each column: python3 tests/judges/soak_plot.py CSV SVG"""

import csv
import sys

WIDTH, HEIGHT, LEFT, TOP = 900, 130, 90, 30
CURVES = [
    ("resident_kb", "resident memory in MB", 1024),
    ("threads", "threads", 1),
    ("descriptors", "open descriptors", 1),
    ("page_bytes", "size of the text page in KB", 1024),
    ("records", "records sent, in millions", 1_000_000),
    ("requests", "finished requests, in thousands", 1_000),
]


def curve(rows, column, title, unit, top):
    times, values = [float(row["seconds"]) for row in rows], [float(row[column]) / unit for row in rows]
    # The axis starts at 0, so that the noise of a flat curve looks small.
    highest, end = max(values) * 1.1 or 1, times[-1] or 1
    step = max(1, len(rows) // 2000)
    points = " ".join(
        f"{LEFT + WIDTH * time / end:.1f},{top + HEIGHT - HEIGHT * value / highest:.1f}"
        for time, value in list(zip(times, values))[::step]
    )
    summary = f"{title}: {values[0]:.2f} to {values[-1]:.2f}, at most {max(values):.2f}"
    text = '<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
    return [
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
        f'<polyline points="{points}" fill="none" stroke="#176"/>',
        text.format(x=LEFT, y=top - 6, anchor="start", text=summary),
        text.format(x=LEFT - 6, y=top + 10, anchor="end", text=f"{highest:.1f}"),
        text.format(x=LEFT - 6, y=top + HEIGHT, anchor="end", text="0"),
    ]


def main():
    with open(sys.argv[1], newline="") as file:
        rows = list(csv.DictReader(file))
    height = TOP + len(CURVES) * (HEIGHT + 2 * TOP)
    size = f'width="{WIDTH + LEFT + 20}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
    ]
    for number, (column, title, unit) in enumerate(CURVES):
        lines += curve(rows, column, title, unit, TOP + number * (HEIGHT + 2 * TOP))
    last = rows[-1]
    summary = f"{last['seconds']} seconds, {last['records']} records, {last['requests']} requests, {last['scrapes']} scrapes"
    lines.append(f'<text x="{LEFT}" y="{height - 10}">{summary}</text>')
    with open(sys.argv[2], "w") as file:
        file.write("\n".join([*lines, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
