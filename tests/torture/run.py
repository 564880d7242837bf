# SPDX-License-Identifier: Apache-2.0
"""Tortures real daemons for a while and checks what clients saw: python3 -m torture.run

    --seconds 30      how long the clients work, over all rounds
    --seed N          of faults and clients; without it one is drawn and printed
    --out FOLDER      where histories and drawings go; build/torture
    --layout N        every round in this layout (0 to 5: tests/torture/cluster.py)
    --draw FILE [--resource R] [--at SECONDS] [--ops N]
                      only draws a recorded history (FILE.history.jsonl) and says where

A seed fixes what everyone wants and when faults come, not how the machine schedules them: the same
seed is the same storm, not the same run. The history that a violation was found in is kept, and
judged again by --judge FILE.
"""

import argparse
import collections
import pathlib
import random
import signal
import sys
import tempfile
import time

from torture import history, invariants, linearize, model, timeline
from torture.client import Lost
from torture.cluster import CLIENTS, LAYOUTS, LEASE_SECONDS_MAX, OPENING, Cluster
from torture.nemesis import Nemesis

ROUND_SECONDS_MAX = 15
CHECK_SECONDS_MAX = 60


class Tally:
    def __init__(self, out):
        self.out = out
        self.passed = 0
        self.failed = 0
        self.drawn = []

    def report(self, ok, what, explanation):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print(f"\nFAILED {what}\n  {explanation}", flush=True)


def judge_resource(tally, name, resource, ops, faults, complete):
    """Each check of one resource; draws what is wrong. Without last words in the history, only
    what needs none."""
    opening = OPENING.get(resource.split("/")[-1])
    verdict = linearize.check(ops, model.initial(opening), seconds=CHECK_SECONDS_MAX)
    results = []
    if verdict.ok:
        results.append(("linearizable", True, "", []))
    elif verdict.decided:
        results.append(("linearizable", False, linearize.explain(verdict), [verdict.op]))
    else:
        results.append(("linearizable", False, f"not decided: {verdict.note}", []))
    results.append(("tokens rise", *invariants.tokens_rise(ops)))
    results.append(("fenced", *invariants.fenced_out(ops)))
    if not complete:
        pass
    elif opening is not None:
        results.append(("stock", *invariants.stock_is_conserved(ops, opening)))
    else:
        results.append(("durable", *invariants.acknowledged_lasts(ops)))
    for check, ok, words, bad in results:
        what = f"{name} {resource}: {check}"
        if not ok and bad:
            path = tally.out / f"{name}-{resource.replace('/', '-').replace(':', '')}-{check}.svg"
            path = path.with_name(path.name.replace(" ", "-"))
            timeline.draw(path, ops, faults, f"{name}, {resource}: not {check}", words, bad,
                          around=max(bad, key=lambda op: op.done or op.call))
            words += f"\n  drawn: {path}"
        tally.report(ok, what, words)


def unresolved_sales(ops):
    """By resource: an unknown attempt of each sale that no reply is known of."""
    lost = {}
    for resource, part in history.by_resource(ops).items():
        sold = invariants.applied(part)
        lost[resource] = list({op.id: op for op in part if op.op == "sell" and not op.known
                               and op.id not in sold}.values())
    return lost


class Progress:
    def __init__(self, cluster, nemesis, name):
        self.cluster, self.nemesis, self.name = cluster, nemesis, name
        self.begun = self.shown = time.monotonic()

    def __call__(self):
        now = time.monotonic()
        every = 1 if sys.stdout.isatty() else 10
        if now - self.shown < every:
            return
        self.shown = now
        lines = sum(path.stat().st_size for path in self.cluster.histories) // 200
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"{self.name}: {now - self.begun:3.0f} s, about {lines} ops, "
              f"{sum(self.nemesis.counts.values())} faults", end=end, flush=True)


def run_round(tally, name, seed, layout, seconds, totals):
    with tempfile.TemporaryDirectory(prefix="stockade-torture-") as folder:
        try:
            cluster = Cluster(pathlib.Path(folder) / "round", seed, layout)
        except (AssertionError, OSError) as problem:
            tally.report(False, f"{name}: everyone starts", str(problem))
            return []
        nemesis = Nemesis(cluster, seed)
        late, trouble, complete = None, [], False
        try:
            cluster.begin(seconds)
            nemesis.run(cluster.until, Progress(cluster, nemesis, name))
            if not cluster.dead():
                cluster.heal()
                late = cluster.last_words(unresolved_sales(history.merge(cluster.histories)))
                complete = late is None
        except (AssertionError, Lost, OSError) as problem:  # one that does not start, or answer
            trouble.append(f"{type(problem).__name__}: {problem}")
        finally:
            trouble += [process.describe() for process in cluster.dead()]
            trouble += [process.describe() for process in cluster.failed_clients()]
            trouble += cluster.close()
        ops = history.merge(cluster.histories)
    totals.update(nemesis.counts)
    history.write(tally.out / f"{name}.history.jsonl", ops, nemesis.log)
    tally.report(not trouble, f"{name}: everyone lives", "\n".join(trouble))
    worked = {op.client.partition(".")[0] for op in ops if op.client.startswith("c")}
    tally.report(2 * len(worked) > CLIENTS, f"{name}: clients work",
                 f"only these did anything: {sorted(worked)}")
    tally.report(not late, f"{name}: leases are to be had again",
                 f"not within {LEASE_SECONDS_MAX:g} s: {late}")
    judge(tally, name, ops, nemesis.log, complete)
    return ops


def judge(tally, name, ops, faults, complete=True):
    for store in sorted({op.resource.rpartition("/")[0] for op in ops}):
        part = [op for op in ops if op.resource.rpartition("/")[0] == store]
        ok, words, bad = invariants.baskets_are_whole(part) if complete else (True, "", [])
        if not ok:
            part = [op for op in part if op.op in ("sell", "receipt")]
            path = tally.out / f"{name}-baskets{store}.svg"
            timeline.draw(path, part, faults, f"{name}: a basket in parts", words, bad, bad[0])
            words += f"\n  drawn: {path}"
        tally.report(ok, f"{name} {store}: baskets whole", words)
    for resource, part in history.by_resource(ops).items():
        judge_resource(tally, name, resource, part, faults, complete)


def torture(options):
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*"):
        old.unlink()
    layouts = LAYOUTS if options.layout is None else LAYOUTS[options.layout:options.layout + 1]
    rounds = max(min(2, len(layouts)), -(-options.seconds // ROUND_SECONDS_MAX))
    print(f"torture: seed {seed}, {rounds} rounds of {options.seconds / rounds:.0f} s", flush=True)
    tally, faults, count, begun = Tally(options.out), collections.Counter(), [0, 0], time.time()
    for number in range(rounds):
        layout = layouts[number % len(layouts)]
        name = f"round{number}-{'-'.join(layout)}"
        failed = tally.failed
        ops = run_round(tally, name, f"{seed}/{number}", layout, options.seconds / rounds, faults)
        count[0] += len(ops)
        count[1] += sum(not op.known for op in ops)
        print(f"{name}: {len(ops)} operations, {sum(not op.known for op in ops)} unknown, "
              f"{time.time() - begun:.0f} s", flush=True)
        if tally.failed > failed:
            print(f"  again: make torture SECONDS={options.seconds} SEED={seed}\n"
                  f"  history: {tally.out}/{name}.history.jsonl", flush=True)
            break
    kinds = ", ".join(f"{kind} {times}" for kind, times in sorted(faults.items()))
    print(f"{count[0]} operations, {count[1]} unknown; {sum(faults.values())} faults: {kinds}")
    return tally


def drawing(options):
    ops, faults = history.read(options.draw)
    if options.resource:
        ops = [op for op in ops if op.resource == options.resource]
    begin = ops[0].call + options.at
    ops = [op for op in ops if op.call >= begin][:options.ops]
    path = options.out / (options.draw.name.split(".")[0] + ".svg")
    timeline.draw(path, ops, faults, f"{options.draw.name} {options.resource or ''}")
    print(path)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--layout", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/torture"))
    parser.add_argument("--draw", type=pathlib.Path)
    parser.add_argument("--judge", type=pathlib.Path)
    parser.add_argument("--resource")
    parser.add_argument("--at", type=float, default=0.0)
    parser.add_argument("--ops", type=int, default=60)
    options = parser.parse_args()
    if options.draw:
        drawing(options)
        return
    if options.judge:
        tally = Tally(options.out)
        judge(tally, options.judge.name.split(".")[0], *history.read(options.judge))
    else:
        tally = torture(options)
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
