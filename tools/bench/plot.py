# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, written by hand: bars with their range, and lines on a logarithmic axis."""

import html
import math

OURS, OTHER = "#1f5fa8", "#a9b4c2"
COLOURS = ("#1f5fa8", "#c4541b", "#3b8a4a", "#7a4fa3", "#8a6d1d", "#4d4d4d")
WIDTH, LABELS, ROW = 900, 250, 24


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def bars(rows):
    """rows: label, value, (lowest, highest). The first is ours."""
    most = max(max(value, high) for _, value, (_, high) in rows) or 1
    scale = (WIDTH - LABELS - 110) / most
    out = []
    for number, (label, value, (low, high)) in enumerate(rows):
        y = number * ROW
        middle = y + ROW / 2
        out.append(text(LABELS - 8, middle + 4, label, "end"))
        out.append(f'<rect x="{LABELS}" y="{y + 4}" width="{value * scale:.1f}" height="{ROW - 8}" '
                   f'fill="{OTHER if number else OURS}"/>')
        out.append(f'<path d="M{LABELS + low * scale:.1f} {middle}H{LABELS + high * scale:.1f}" '
                   'stroke="#222"/>')
        out.append(text(LABELS + max(value, high) * scale + 6, middle + 4, f"{value:,.0f}"))
    return f'<svg viewBox="0 0 {WIDTH} {ROW * len(rows)}" role="img">{"".join(out)}</svg>'


def lines(series, unit):
    """label: [(x, y)], x on a logarithmic axis."""
    height, left, right, bottom = 320, 80, 250, 40
    points = [point for line in series.values() for point in line]
    low, high = (math.log10(limit) for limit in (min(x for x, _ in points),
                                                 max(x for x, _ in points)))
    top = max(y for _, y in points) or 1

    def place(x, y):
        across = (math.log10(x) - low) / ((high - low) or 1)
        return (left + across * (WIDTH - left - right),
                10 + (1 - y / top) * (height - bottom - 10))
    out = []
    for part in range(5):
        _, y = place(10 ** low, top * part / 4)
        out.append(f'<path d="M{left} {y:.1f}H{WIDTH - right}" stroke="#ddd"/>')
        out.append(text(left - 8, y + 4, f"{top * part / 4:,.0f}", "end"))
    for x in sorted({x for x, _ in points}):
        out.append(text(place(x, 0)[0], height - bottom + 20, f"{x:,}", "middle"))
    out.append(text((left + WIDTH - right) / 2, height - 4, unit, "middle"))
    for number, (label, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in sorted(line))
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = 20 + number * 20
        out.append(f'<rect x="{WIDTH - right + 20}" y="{y - 9}" width="12" height="10" '
                   f'fill="{colour}"/>')
        out.append(text(WIDTH - right + 38, y, label))
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(out)}</svg>'
