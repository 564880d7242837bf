# SPDX-License-Identifier: Apache-2.0
"""Results as text."""

COLUMNS = (("rate", "{:,.0f}"), ("p50", "{:.2f}"), ("p99", "{:.2f}"), ("p999", "{:.2f}"),
           ("cpu_us", "{:.1f}"), ("written_bytes", "{:,.0f}"), ("memory_mb", "{:,.0f}"),
           ("batch", "{:.0f}"))
HEADS = ("/s", "p50 ms", "p99 ms", "p99.9", "CPU us/op", "bytes/op", "MB", "batch", "ratio", "goal")


def ratios(case, results):
    """label: how many times its rate ours is, for all but ours."""
    ours = results[case.contenders[0].label]["rate"]
    return {contender.label: ours / results[contender.label]["rate"]
            for contender in case.contenders[1:] if results[contender.label]["rate"]}


def rows(case, results):
    ratio_of = ratios(case, results)
    for contender in case.contenders:
        figures = results[contender.label]
        cells = [form.format(figures[name]) if name in figures else "-" for name, form in COLUMNS]
        ratio, goal = ratio_of.get(contender.label), case.goals.get(contender.label)
        cells.append(f"{ratio:.2f}" if ratio else "")
        cells.append("" if goal is None else f"{goal:g} {verdict(ratio, goal)}")
        yield [contender.label, *cells]


def verdict(ratio, goal):
    return "ok" if ratio >= goal else "MISSED"


CALLED = {"p99": "p99, ms", "gap_ms": "longest time without any reply, ms",
          "unequal": "cycles of the luckiest client to the unluckiest's",
          "more_memory_mb": "more memory, MB"}


def ceilings(case, results):
    """What ours may be at most, in words."""
    for name, most in case.ceiling.items():
        ours = results[case.contenders[0].label].get(name, float("inf"))
        yield (f"{CALLED[name]}: {ours:.2f}, at most {most:g}: "
               f"{'ok' if ours <= most else 'MISSED'}")
    yield from p99_parts(case, results)


def p99_parts(case, results):
    for label, most in case.p99_parts.items():
        if label not in results:
            continue
        part = results[case.contenders[0].label]["p99"] / results[label]["p99"]
        yield (f"p99 as a part of that of {label}: {part:.3f}, at most {most:g}: "
               f"{'ok' if part <= most else 'MISSED'}")


def text(case, results):
    lines = [case.title + (f" ({case.unit})" if case.unit != "ops" else "")]
    table = [["", *HEADS], *rows(case, results)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        lines.append("  " + "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))).rstrip())
    lines += [f"  {line}" for line in ceilings(case, results)]
    return "\n".join(lines) + "\n"
