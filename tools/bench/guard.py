# SPDX-License-Identifier: Apache-2.0
"""Instructions per operation: does not depend on the machine's speed or on what else runs there.

The daemon runs under callgrind twice, with few operations and with more; the difference, divided by
the operations more, is what one costs. One client sends pipelines, so batches are always the same.
Figures are compared with those in tools/bench/instructions.txt: more than the tolerance above is a
regression; that far below, too, asks for the new figure: `make bench-guard UPDATE=1`. A disturbance
can only add to a run (what was to run where it arrived goes to a thread): of the tries, the least
run with few operations and the least with many count, whichever tries they are of.
The last line is `N passed, N failed`.
"""

import argparse
import pathlib
import re
import shutil
import sys
import tempfile
import time

from bench import clients, peers
from bench.server import ROOT, BenchError

KNOWN = ROOT / "tools/bench/instructions.txt"
TOLERANCE = 0.1
TRIES = 4
FEW, MANY, PIPELINE, KEYS = 100, 700, 16, 1000
WARM_UP, ELSEWHERE_SECONDS = 20, 1.1  # store/worker.c: INLINE_AGAIN_MS
CASES = {
    "write-16": "FENCED 1 SET key:{key} {value}",
    "decrement-16": "FENCED 1 HINCRBY stock:{key} stock -1 MIN 0",
    "read-16": "GET key:{key}",
    "acquire-16": "ACQUIRE lease:{next} 600000",
}


class Counted(peers.Stockade):
    """A daemon under callgrind."""

    def spawn(self, command, **options):
        super().spawn(["valgrind", "--tool=callgrind", "--quiet", "--fair-sched=yes",
                       f"--callgrind-out-file={self.folder}/calls", *command], **options)

    def instructions(self):
        """End it, and return how many instructions it executed in all."""
        self.stop()
        said = (self.folder / "calls").read_text(errors="replace")
        return int(re.search(r"^(?:summary|totals):\s*(\d+)", said, re.M)[1])


def count(folder, words, rounds):
    server = Counted(folder)
    try:
        clients.fill(server, KEYS, "ACQUIRE key:{next} 86400000", "FENCED 1 SET key:{next} {value}")
        clients.fill(server, KEYS, "ACQUIRE stock:{next} 86400000",
                     "FENCED 1 HSET stock:{next} stock 1000000")
        keys = 10 ** 6 if "{next}" in words else KEYS
        # Under valgrind new code is slow at first, and slow work is left to a thread for a while.
        clients.commands(server, [words], clients=1, pipeline=PIPELINE, ops=WARM_UP, keys=keys)
        time.sleep(ELSEWHERE_SECONDS)
        clients.commands(server, [words], clients=1, pipeline=PIPELINE, ops=rounds, keys=keys)
        return server.instructions()
    finally:
        server.stop()


def measure(folder, name, known):
    """Try until the figure is the known one, within the tolerance; the last try counts anyhow."""
    few, many = [], []
    for number in range(TRIES):
        for runs, rounds in ((few, FEW), (many, MANY)):
            path = pathlib.Path(folder) / f"{name}-{number}-{rounds}"
            runs.append(count(path, CASES[name], rounds))
        now = (min(many) - min(few)) / ((MANY - FEW) * PIPELINE)
        if is_near(now, known):
            break
    return now


def is_near(now, known):
    return abs(now - known) <= TOLERANCE * known


def read_known():
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return {name: int(number) for name, number in (line.split() for line in lines
                                                   if line and not line.startswith("#"))}


def write_known(figures):
    lines = [f"{name} {round(number)}" for name, number in figures.items()]
    KNOWN.write_text("# SPDX-License-Identifier: Apache-2.0\n# Instructions of the daemon for one "
                     "operation; tools/bench/guard.py.\n" + "\n".join(lines) + "\n")


def judge(name, now, known):
    """Return a line of the report, and whether the figure is good."""
    if name not in known:
        return f"{name:14}{now:10,.0f}  no figure to compare with", False
    change, fine = now / known[name] - 1, is_near(now, known[name])
    verdict = "ok" if fine else "MORE" if change > 0 else "LESS: commit it"
    return f"{name:14}{now:10,.0f}{known[name]:10,}{change:+8.1%}  {verdict}", fine


def main():
    parser = argparse.ArgumentParser(prog="bench.guard", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep the figures")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="stockade-guard-")
    known, failed, figures = read_known(), 0, {}
    print("instructions   now    before")
    try:
        for name in CASES:
            figures[name] = measure(folder, name, 0 if options.update else known.get(name, 0))
            line, fine = judge(name, figures[name], known)
            failed += not fine
            print(line, flush=True)
    except BenchError as error:
        sys.exit(f"bench-guard: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.update:
        write_known(figures)
        return
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
