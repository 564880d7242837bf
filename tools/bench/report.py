# SPDX-License-Identifier: Apache-2.0
"""Results for people: text; one HTML file with everything in it; a page of Markdown for the
repository; and the one table that matters, for the page on speed:
python3 -m bench.report RESULTS.json tools/bench/README.md"""

import html
import json
import pathlib
import re
import sys

from bench import plot

# Text.

COLUMNS = (("rate", "{:,.0f}"), ("p50", "{:.2f}"), ("p99", "{:.2f}"), ("p999", "{:.2f}"),
           ("cpu_us", "{:.1f}"), ("written_bytes", "{:,.0f}"), ("memory_mb", "{:,.0f}"),
           ("batch", "{:.0f}"))
HEADS = ("/s", "p50 ms", "p99 ms", "p99.9", "CPU us/op", "bytes/op", "MB", "batch", "ratio", "goal")


def ratios(case, results):
    """Return label: our rate over its, for all others."""
    ours = results[case.contenders[0].label]["rate"]
    return {contender.label: ours / results[contender.label]["rate"]
            for contender in case.contenders[1:] if results[contender.label]["rate"]}


def table_rows(case, results):
    ratio_of = ratios(case, results)
    for contender in case.contenders:
        figures = results[contender.label]
        cells = [form.format(figures[name]) if name in figures else "-" for name, form in COLUMNS]
        ratio, goal = ratio_of.get(contender.label), case.goals.get(contender.label)
        cells.append(f"{ratio:.2f}" if ratio else "")
        cells.append("" if goal is None else f"{goal:g} {verdict(ratio, goal)}")
        yield [contender.label, *cells]


def verdict(ratio, goal):
    if ratio is None:
        return "unknown"  # a short run, in which the peer did nothing
    return "ok" if ratio >= goal else "MISSED"


CALLED = {"p99": "p99, ms", "gap_ms": "longest time without any reply, ms",
          "unequal": "cycles of the luckiest client to the unluckiest's",
          "more_memory_mb": "more memory, MB"}


def ceilings(case, results):
    """Say in words which limits ours has to keep."""
    ours = results[case.contenders[0].label]
    found = []
    for name, most in case.ceiling.items():
        figure = ours.get(name, float("inf"))
        found.append((CALLED[name], f"{figure:.2f}", figure, most))
    for label, most in case.p99_parts.items():
        if label in results:
            part = ours["p99"] / results[label]["p99"]
            found.append((f"p99 as a part of that of {label}", f"{part:.3f}", part, most))
    for what, shown, figure, most in found:
        yield f"{what}: {shown}, at most {most:g}: {'ok' if figure <= most else 'MISSED'}"


def text(case, results):
    lines = [case.title + (f" ({case.unit})" if case.unit != "ops" else "")]
    table = [["", *HEADS], *table_rows(case, results)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        lines.append("  " + "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))).rstrip())
    lines += [f"  {line}" for line in ceilings(case, results)]
    return "\n".join(lines) + "\n"


# HTML and Markdown.

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}h1{font-size:1.6rem}h2{font-size:1.1rem;margin:2.2rem 0 .4rem}
table{border-collapse:collapse;font-size:13px;margin:.5rem 0}td,th{padding:.2rem .7rem;
text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
.missed{color:#b00020}.ok{color:#1b6e3c}dt{font-weight:600}dd{margin:0 0 .3rem 0}
svg text{font:12px system-ui,sans-serif;fill:#222}"""
NOTES = (
    "Medians over interleaved rounds. Latencies are those of a round trip: of a whole pipeline "
    "where there is one, and of a transaction for raw SQLite.",
    "CPU is the server's, in user and system mode; bytes are those written to the disk, with "
    "what was left to be written; MB is its share of resident memory. Batch: operations in a "
    "transaction of the store.",
    "Ratio: the first row's rate over this one's. Goal: what that has to reach.",
)
CURVES = (
    ("Writes per second as the number of keys grows (pipeline 16)", "keys",
     ("write-16-1000", "curve-10000", "write-16-100000", "write-16-1000000", "curve-10000000")),
    ("Writes in PostgreSQL per second as the number of keys grows", "keys",
     ("growth-1000", "growth-10000", "growth-100000", "growth-1000000")),
    ("Writes per second as the number of connections grows", "connections",
     ("connections-1", "write-1-100000", "connections-1000", "connections-10000")),
)


def cells(row, tag):
    out = []
    for cell in row:
        kind = "missed" if "MISSED" in cell else "ok" if cell.endswith(" ok") else ""
        out.append(f'<{tag} class="{kind}">{html.escape(cell)}</{tag}>' if kind else
                   f"<{tag}>{html.escape(cell)}</{tag}>")
    return "<tr>" + "".join(out) + "</tr>"


def case_html(case, results):
    bars = [(contender.label, results[contender.label]["rate"],
             (results[contender.label]["lowest"], results[contender.label]["highest"]))
            for contender in case.contenders]
    rows = "".join(cells(row, "td") for row in table_rows(case, results))
    more = "".join(f"<p>{html.escape(line)}</p>" for line in ceilings(case, results))
    return (f"<h2>{html.escape(case.title)}, {case.unit} per second</h2>{plot.bars(bars)}"
            f"<table>{cells(['', *HEADS], 'th')}{rows}</table>{more}")


def position(name, unit):
    parts = name.split("-")
    return 50 if unit == "connections" and parts[0] == "write" else int(parts[-1])


def curves(results):
    for title, unit, names in CURVES:
        lines = {}
        for name in names:
            for label, figures in results.get(name, {}).items():
                lines.setdefault(label, []).append((position(name, unit), figures["rate"]))
        lines = {label: points for label, points in lines.items() if len(points) > 1}
        if lines:
            yield f"<h2>{title}</h2>{plot.lines(lines, unit)}"


def durable_lines(found):
    for tag, (writes, keys) in found.items():
        yield (f"{tag}: killed (-9) after {writes:,} acknowledged writes; the last one of each of "
               f"{keys:,} keys was there after the restart")


def page(cases, results, about, found):
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>"
                    for name, text in about.items())
    body = "".join(case_html(case, results[case.name]) for case in cases)
    checks = "".join(f"<li>{html.escape(line)}</li>" for line in durable_lines(found))
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in NOTES)
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Stockade: results</title>'
            f"<style>{STYLE}</style><h1>Stockade beside others</h1><dl>{facts}</dl>{notes}"
            f"{''.join(curves(results))}{body}"
            f"<h2>Is there what was acknowledged?</h2><ul>{checks}</ul></html>\n")


def markdown(cases, results, about, found):
    lines = ["# Stockade beside others: results", "",
             "Written by `make bench-page`; do not edit. Compare ratios between machines, not "
             "rates.", ""]
    lines += [f"- {name}: {text}" for name, text in about.items()] + [""]
    lines += [f"{note}\n" for note in NOTES]
    for case in cases:
        lines += [f"## {case.title}", ""]
        heads = [case.unit + "/s" if head == "/s" else head for head in HEADS]
        lines += ["| | " + " | ".join(heads) + " |", "|---" + "|--:" * len(heads) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in table_rows(case, results[case.name])]
        lines += [f"\n{line}" for line in ceilings(case, results[case.name])] + [""]
    lines += ["## Is there what was acknowledged?", ""]
    lines += [f"- {line}" for line in durable_lines(found)]
    return "\n".join(lines) + "\n"


# The page on speed.

BEGIN, END = "<!-- speed: written by `make bench-page` -->\n", "<!-- /speed -->\n"
PEERS = {"Redis": ("Redis SET", "Redis GET", "Redis GET and SET", "Redis MULTI", "Redis lock",
                   "Redis lock, asks each 20 ms"),
         "Redis, token checked in Lua": ("Redis, token checked in Lua",
                                         "Redis, lock and token in Lua"),
         "PostgreSQL": ("PostgreSQL", "PostgreSQL, 16 in a transaction",
                        "PostgreSQL, lease by hand"),
         "etcd": ("etcd put", "etcd mutex"),
         "ZooKeeper": ("ZooKeeper set", "ZooKeeper recipe")}
OURS, ON_REDIS, ON_POSTGRES = "Stockade", "Stockade on Redis", "Stockade on PostgreSQL"
ROWS = (
    ("fenced write", "write-1-100000", OURS),
    ("fenced write, pipeline 16", "write-16-100000", OURS),
    ("fenced write, a million keys", "write-1-1000000", OURS),
    ("fenced write, a million keys, pipeline 16", "write-16-1000000", OURS),
    ("bounded decrement, 10,000 keys", "decrement-1", OURS),
    ("transaction of 8 writes", "transaction", OURS),
    ("read", "read-1", OURS),
    ("read, pipeline 16", "read-16", OURS),
    ("80 % reads, 20 % writes", "mixed", OURS),
    ("lease cycle, each its own key", "cycle", OURS),
    ("the same, leases on a Redis", "cycle", ON_REDIS),
    ("lease cycle, all on one key", "cycle-hot", OURS),
    ("store in PostgreSQL: fenced write", "pg-write-1", ON_POSTGRES),
    ("the same, pipeline 16", "pg-write-16", ON_POSTGRES),
    ("the same, transaction of 8 writes", "pg-transaction", ON_POSTGRES),
    ("the same, read", "pg-read", ON_POSTGRES),
    ("the same, lease cycle, each its own key", "pg-cycle", ON_POSTGRES),
)


def peer_ratio(ours, figures, labels):
    for label in labels:
        if label in figures:
            return f"{ours['rate'] / figures[label]['rate']:.2f}"
    return ""


def page_table(results):
    yield "| 50 clients, 100,000 keys | a second | p99 | " + " | ".join(
        f"to {peer}" for peer in PEERS) + " |"
    yield "|---|--:|--:|" + "--:|" * len(PEERS)
    for title, case, label in ROWS:
        if label not in results.get(case, {}):
            continue
        ours = results[case][label]
        cells = [title, f"{ours['rate']:,.0f}", f"{ours['p99']:.1f} ms",
                 *(peer_ratio(ours, results[case], labels) for labels in PEERS.values())]
        yield "| " + " | ".join(cells) + " |"


def growth_table(results):
    """Nothing where that was not measured."""
    cases = {name: figures for name, figures in results.items() if name.startswith("growth-")}
    if cases:
        yield from ("", "| store in PostgreSQL, keys | a second | pipeline 16 | to PostgreSQL |",
                    "|--:|--:|--:|--:|")
    for name, figures in cases.items():
        cells = [f"{position(name, 'keys'):,}", f"{figures[ON_POSTGRES]['rate']:,.0f}",
                 f"{figures[ON_POSTGRES + ', pipeline 16']['rate']:,.0f}",
                 peer_ratio(figures[ON_POSTGRES], figures, ("PostgreSQL",))]
        yield "| " + " | ".join(cells) + " |"


def put_into_page(page, results):
    """The text of the page with the tables of these results."""
    block = BEGIN + "\n" + "\n".join([*page_table(results), *growth_table(results)]) + "\n\n" + END
    text, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, page,
                          flags=re.S)
    if count != 1:
        raise ValueError("the page has no place for the table")
    return text


def main():
    results, page = map(pathlib.Path, sys.argv[1:])
    figures = json.loads(results.read_text())["results"]
    page.write_text(put_into_page(page.read_text(), figures))


if __name__ == "__main__":
    main()
