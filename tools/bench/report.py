# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file with everything in it, and a page of Markdown for the repository."""

import html

from bench import plot, table

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
    rows = "".join(cells(row, "td") for row in table.rows(case, results))
    more = "".join(f"<p>{html.escape(line)}</p>" for line in table.ceilings(case, results))
    return (f"<h2>{html.escape(case.title)}, {case.unit} per second</h2>{plot.bars(bars)}"
            f"<table>{cells(['', *table.HEADS], 'th')}{rows}</table>{more}")


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
        heads = [case.unit + "/s" if head == "/s" else head for head in table.HEADS]
        lines += ["| | " + " | ".join(heads) + " |", "|---" + "|--:" * len(heads) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows(case, results[case.name])]
        lines += [f"\n{line}" for line in table.ceilings(case, results[case.name])] + [""]
    lines += ["## Is there what was acknowledged?", ""]
    lines += [f"- {line}" for line in durable_lines(found)]
    return "\n".join(lines) + "\n"
