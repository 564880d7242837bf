# SPDX-License-Identifier: Apache-2.0
"""Cases, their contenders, and interleaved rounds.

In each round every contender of a case runs once, so that whatever else the machine does affects
all alike; the figures are medians over the rounds. The servers for one number of keys run side by
side, and only one of them has work.
"""

import contextlib
import dataclasses
import os
import statistics
import sys
import time

WARM_UP_S = 1
PER_OP = ("cpu_us", "written_bytes")
FIGURES = ("rate", "p50", "p99", "p999", "max", *PER_OP, "memory_mb", "batch", "gap_ms", "gaps",
           "unequal", "more_memory_mb")


@dataclasses.dataclass
class Contender:
    """Someone to be measured: run(bout) does it once and returns what the client saw."""
    label: str
    tag: str
    run: object


@dataclasses.dataclass
class Case:
    """`goals`: how many times another's rate the first contender, ours, has to reach."""
    name: str
    title: str
    keys: int
    contenders: list
    goals: dict = dataclasses.field(default_factory=dict)
    around: object = None   # around(servers): the context in which all of it happens
    unit: str = "ops"
    seconds: float = 0      # other than usual
    rounds: int = 0
    ceiling: dict = dataclasses.field(default_factory=dict)  # figure: what ours may be at most
    # Another's label: our p99 may be this part of its.
    p99_parts: dict = dataclasses.field(default_factory=dict)
    quick: bool = False
    asked: str = ""         # "huge", "growth": only where that is asked for
    drawn: int = 0          # random keys are below this, where it is not `keys`


@dataclasses.dataclass
class Bout:
    """One run of one contender."""
    server: object
    servers: dict
    case: Case
    seconds: float
    rate: float   # the last run's, or None
    latest: dict  # label: the latest result of each contender in this case

    @property
    def time(self):
        return f"{int(self.seconds * 1000)}ms"

    def requests(self, unit=1):
        """Return how many take `seconds`, in whole pipelines."""
        return max(unit, int(self.rate * self.seconds) // unit * unit)


class Progress:
    """One line that is rewritten, on a terminal only."""

    def __init__(self, total):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.shown = sys.stderr.isatty()

    def step(self, text, count=1):
        self.done += count
        if self.shown:
            spent = time.monotonic() - self.start
            left = spent / max(self.done, 1) * (self.total - self.done)
            print(f"\r\033[K[{self.done}/{self.total}, {left:.0f} s left] {text}", end="",
                  file=sys.stderr, flush=True)

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def metered(contender, bout):
    """Run once: what the client saw, and what it cost the server."""
    server = bout.server
    os.sync()  # so that nobody pays for what others left to be written
    counts = server.counts() if hasattr(server, "counts") else None
    cpu_s, written = server.cpu_s(), server.disk_bytes()
    result = contender.run(bout)
    ops = max(result["ops"], 1)
    result.setdefault("cpu_us", (server.cpu_s() - cpu_s) / ops * 1e6)
    os.sync()
    result["written_bytes"] = (server.disk_bytes() - written) / ops
    result.setdefault("memory_mb", server.memory_bytes() / 1e6)
    if result.get("fewest"):
        # The end cuts a round of turns in two, so one cycle more is no sign of favour.
        result["unequal"] = max(1, (result["most"] - 1) / result["fewest"])
    if counts:
        commits, writes = (now - then for now, then in zip(server.counts(), counts))
        if commits > 0:
            result["batch"] = writes / commits
    return result


def median(results):
    names = [name for name in FIGURES if any(name in result for result in results)]
    figures = {name: statistics.median(result[name] for result in results if name in result)
               for name in names}
    rates = sorted(result["rate"] for result in results)
    figures["lowest"], figures["highest"] = rates[0], rates[-1]
    return figures


def run_case(case, servers, options, progress):
    """Return label: medians."""
    results = {contender.label: [] for contender in case.contenders}
    latest, rates = {}, {}

    def turn(contender, seconds):
        bout = Bout(servers[contender.tag], servers, case, seconds, rates.get(contender.label),
                    latest)
        result = latest[contender.label] = metered(contender, bout)
        rates[contender.label] = result["rate"]
        return result

    with case.around(servers) if case.around else contextlib.nullcontext():
        if not options.quick:  # caches fill, a JVM compiles
            for contender in case.contenders:
                progress.step(f"{case.title}: {contender.label}, warming up", 0)
                turn(contender, WARM_UP_S)
        for number in range(case.rounds or options.rounds):
            for contender in case.contenders:
                progress.step(f"{case.title}: {contender.label}, round {number + 1}")
                seconds = min(case.seconds, 20 * options.seconds) or options.seconds
                results[contender.label].append(turn(contender, seconds))
    return {label: median(runs) for label, runs in results.items()}
