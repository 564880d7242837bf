# SPDX-License-Identifier: Apache-2.0
"""Draws a history as a timeline, one lane for each client, as one SVG file that needs nothing else.

Time runs to the right, but is stretched: calls, replies and faults stand at equal distances, so
that what took a millisecond can be read beside what took a second; the clock is written above.
"""

import textwrap
from xml.sax.saxutils import escape

STEP = 46          # pixels between two moments
LEFT = 90
TOP = 118
BAR = 18
ROW = 38           # a bar and its label
FONT = 11
COLOURS = {"acquire": "#2f6fb5", "release": "#7a9cc6", "revoke": "#7a4fb5", "renew": "#8fa8c0",
           "set": "#2e8b57", "swap": "#2e8b57", "sell": "#2e8b57", "get": "#b0b0a0",
           "fget": "#b0b0a0", "lease": "#b0b0a0", "receipt": "#b0b0a0"}
STYLE = f"""text {{ font: {FONT}px monospace; fill: #222 }}
.title {{ font-size: 15px; font-weight: bold }} .note {{ fill: #444 }}
.bad {{ stroke: #c00000; stroke-width: 2.5 }} .badtext {{ fill: #c00000; font-weight: bold }}
.fault {{ stroke: #d07000; stroke-dasharray: 4 3 }} .faulttext {{ fill: #b05000 }}
.lane {{ stroke: #ddd }} .tick {{ fill: #999; font-size: 9px }} .refused {{ fill-opacity: 0.35 }}
.prefix {{ fill: #c00000; fill-opacity: 0.05 }}"""


def window(ops, around=None, before=26, after=4):
    """The operations to draw: all, or those up to `around`'s reply and a few after it."""
    ops = sorted(ops, key=lambda op: op.call)
    if around is None:
        return ops[-(before + after):]
    end = around.done if around.known else around.call
    past = [op for op in ops if op.call <= end]
    later = [op for op in ops if op.call > end]
    return past[-before:] + later[:after]


def rows_of(ops, place):
    """Row of each operation: lanes by client, and rows in a lane so that nothing overlaps."""
    lanes, rows = {}, {}
    for client in sorted({op.client for op in ops}):
        ends = []
        for op in (op for op in ops if op.client == client):
            begin = place(op.call)
            end = max(place(op.done) if op.known else begin + 3 * STEP,
                      begin + 14 + len(op.label()) * FONT * 0.62)
            free = next((i for i, taken in enumerate(ends) if taken <= begin), None)
            if free is None:
                free = len(ends)
                ends.append(end)
            ends[free] = end
            rows[op.index] = free
        lanes[client] = len(ends)
    return lanes, rows


class _Canvas:
    def __init__(self):
        self.parts = []

    def text(self, x, y, words, kind="", **more):
        extra = "".join(f' {key}="{value}"' for key, value in more.items())
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}"{extra}>'
                          f"{escape(words)}</text>")

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" '
                          f'class="{kind}"/>')

    def box(self, x, y, width, height, kind, fill=None, tip=None):
        colour = f' fill="{fill}"' if fill else ""
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{max(width, 3):.0f}" '
                          f'height="{height:.0f}" rx="2" class="{kind}"{colour}>{inside}</rect>')


def draw_op(canvas, op, x, end, y, bad):
    kind = "bad" if bad else ""
    if op.error is not None:
        kind += " refused"
    tip = (f"{op.client} n={op.n} at {op.at}: {op.op} token={op.token} id={op.id} "
           f"value={op.value} reply={op.reply!r} error={op.error}")
    canvas.box(x, y, end - x, BAR - 4, kind.strip(), COLOURS.get(op.op, "#888"), tip)
    if not op.known:
        canvas.text(end + 2, y + BAR - 6, "…")
    canvas.text(x, y - 3, op.label(), "badtext" if bad else "")


def draw(path, ops, faults=(), title="", note="", bad=(), around=None):
    """Writes the SVG. `bad` are drawn in red; up to `around`'s reply the ground is tinted: that
    much already has no order."""
    if around is not None:
        ops = {op.index: op for op in (*window(ops, around), *bad)}.values()
    ops = sorted(ops, key=lambda op: op.call)
    begin = min((op.call for op in ops), default=0.0)
    finish = max([op.done or op.call for op in ops], default=0.0)
    faults = [fault for fault in faults if begin - 0.2 <= fault[0] <= finish]
    moments = sorted({op.call for op in ops} | {op.done for op in ops if op.known}
                     | {moment for moment, _ in faults})
    places = {moment: LEFT + 20 + i * STEP for i, moment in enumerate(moments)}
    lanes, rows = rows_of(ops, places.__getitem__)
    tops, y = {}, TOP
    for client, count in lanes.items():
        tops[client] = y
        y += count * ROW + 10
    width, height = LEFT + 220 + len(moments) * STEP, y + 40
    canvas = _Canvas()
    canvas.text(10, 22, title, "title")
    for number, line in enumerate(textwrap.wrap(note, 150)[:4]):
        canvas.text(10, 40 + 14 * number, line, "note")
    if around is not None and around.known and around.done in places:
        canvas.box(LEFT, TOP - 14, places[around.done] - LEFT, height - TOP - 20, "prefix")
    canvas.text(8, TOP - 8, "ms", "tick")
    for i, moment in enumerate(moments):
        canvas.text(places[moment], TOP - (8 if i % 2 else 17),
                    f"{(moment - begin) * 1000:.1f}", "tick")
    for client, top in tops.items():
        canvas.line(0, top - 6, width, top - 6, "lane")
        canvas.text(8, top + BAR, client)
    for number, (moment, what) in enumerate(faults):
        canvas.line(places[moment], TOP - 4, places[moment], height - 30, "fault")
        canvas.text(places[moment] + 3, height - 8 - 11 * (number % 3), what, "faulttext")
    wrong = {op.index for op in bad}
    for op in ops:
        x = places[op.call]
        end = places[op.done] if op.known else min(x + 3 * STEP, width - 20)
        draw_op(canvas, op, x, end, tops[op.client] + rows[op.index] * ROW + 12,
                op.index in wrong)
    body = "\n".join(canvas.parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n', encoding="utf-8")
