# SPDX-License-Identifier: Apache-2.0
"""Instructions per operation: does not depend on the machine's speed or on what else runs there.

One daemon runs under callgrind, which counts from one ECHO to the next (`--dump-before`). Keys and
values are the same in each run (`--seed`), one client at a time sends them, so batches are the
same, too, and they go before all else on the machine. All cases are run in turns, ROUNDS times. A
disturbance can only add to a figure (what was to run where it arrived goes to a thread): the least
one counts, and where one is too much still, a new daemon is tried, up to TRIES in all. (More rounds
would not do: the longer a daemon has written, the less its writes cost.)

tools/bench/instructions.txt keeps for each case:

  now      what it cost when the file was last written, `make bench-guard UPDATE=1`
  base     what it cost in the daemon of commit BASE, by this same guard: `make bench-guard
           BASE=FILE` with that daemon
  percent  how far a figure may be from `now`: `make bench-guard NOISE=8` measures all of it so
           often (give the machine other work meanwhile), and keeps NOISE_TIMES the spread (largest
           less least, to the least), at least PERCENT_MIN
  why      where `now` is above `base` by more than that: what the users get for it

More than `now` is a regression; less asks for the new figure. Above the base without a word is a
failure, too: many small steps are a large one. The last line is `N passed, N failed`.
"""

import argparse
import dataclasses
import math
import os
import pathlib
import re
import shutil
import sys
import tempfile

from bench import clients, peers
from bench.server import BUILD, ROOT, BenchError

KNOWN = ROOT / "tools/bench/instructions.txt"
BASE = "c07f9103"
ROUNDS, TRIES = 6, 3
NOISE_TIMES, PERCENT_MIN = 3, 1.0
KEYS, BATCH = 1000, 16
SEEDS = 2  # by turns, so that no value that is written is there already
MARK = ("ECHO mark", "connection_echo")  # a command, and the function that only it runs
MEMORY, MEMORY_ROOM_BYTES = pathlib.Path("/dev/shm"), 1 << 30


@dataclasses.dataclass
class Case:
    """`words`: commands sent together, `pipeline` times at once, in each of `trips` round trips.
    None: bench-load's lease-cycle. What a case of a lease needs, the case before it has left."""

    words: list
    pipeline: int
    trips: int
    keys: int = KEYS


def of(words, pipeline=BATCH, trips=50, keys=KEYS):
    return Case([words], pipeline, trips, keys)


# {round}: a name of its own in each round.
CASES = {
    "ping-16": of("PING", trips=200),
    "read-1": of("GET key:{key}", 1, 400),
    "read-16": of("GET key:{key}", trips=200),
    "read-hash-16": of("HGETALL stock:{key}", trips=100),
    "write-1": of("FENCED 1 SET key:{key} {value}", 1, 200),
    "write-16": of("FENCED 1 SET key:{key} {value}"),
    "write-id-16": of("FENCED 1 ID {round}:{next} SET key:{key} {value}", trips=25),
    "write-hash-16": of("FENCED 1 HSET stock:{key} price {value}"),
    "decrement-16": of("FENCED 1 HINCRBY stock:{key} stock -1 MIN 0"),
    "multi-8": Case(["MULTI", *["FENCED 1 SET key:{key} {value}"] * 8, "EXEC"], 1, 50),
    "acquire-16": of("ACQUIRE {round}:{next} 600000", trips=25, keys=10 ** 6),
    "renew-16": of("RENEW {round}:{next} 1 600000", trips=25, keys=10 ** 6),
    "release-16": of("RELEASE {round}:{next} 1", trips=25, keys=10 ** 6),
    "cycle-1": Case(None, 1, 50),
    "cycle-16": Case(None, BATCH, 10),
}


class Counted(peers.Stockade):
    """A daemon under callgrind. `program`: None is the one that was built."""

    def __init__(self, folder, program):
        self.program = program or BUILD / "stockaded"
        super().__init__(folder)

    def spawn(self, command, **options):
        super().spawn(["valgrind", "--tool=callgrind", "--quiet", "--fair-sched=yes",
                       f"--dump-before={MARK[1]}", f"--callgrind-out-file={self.folder}/calls",
                       self.program, *command[1:]], **options)

    def fill(self, keys):
        for words in ("ACQUIRE key:{next} 86400000", "FENCED 1 SET key:{next} {value}",
                      "ACQUIRE stock:{next} 86400000",
                      "FENCED 1 HSET stock:{next} stock 1000000 price {value}"):
            self.run(Case([words], 20, keys // 20, keys), 1)

    def run(self, case, number):
        options = {"clients": 1, "pipeline": case.pipeline, "ops": case.trips, "keys": case.keys,
                   "seed": 1 + number % SEEDS}
        if case.words:
            words = [words.replace("{round}", f"round-{number}") for words in case.words]
            clients.commands(self, words, **options)
        else:
            clients.load(self, "lease-cycle", **options)

    def instructions(self):
        """Return how many it has executed since it was asked last."""
        clients.commands(self, [MARK[0]], clients=1, ops=1)
        dumps = list(self.folder.glob("calls.*"))
        if len(dumps) != 1:
            raise BenchError(f"{MARK[0]} left {len(dumps)} counts: does {MARK[1]}() still run it?")
        said = dumps[0].read_text(errors="replace")
        dumps[0].unlink()
        return int(re.search(r"^(?:summary|totals):\s*(\d+)", said, re.M)[1])

    def measure(self, case, number):
        """Return what one operation costs."""
        self.instructions()
        self.run(case, number)
        return self.instructions() / (case.trips * case.pipeline)


def hurry():
    """Go before all others: a batch that takes long becomes work for a thread, which costs more."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        print("not root: what else runs here may add some percent")


def measure(program=None):
    """Return the figures by name, of a daemon of its own."""
    room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_ROOM_BYTES
    folder = tempfile.mkdtemp(prefix="stockade-guard-", dir=MEMORY if room else None)
    figures = {name: math.inf for name in CASES}
    try:
        server = Counted(pathlib.Path(folder) / "daemon", program)
        try:
            server.fill(KEYS)
            for number in range(1, ROUNDS + 1):
                for name, last in figures.items():
                    figures[name] = min(last, server.measure(CASES[name], number))
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def measure_beside(rows):
    """Return the figures. One above what is allowed may have been disturbed: try again."""
    figures = measure()
    for _ in range(TRIES - 1):
        if all(figures[name] <= row.most() for name, row in rows.items() if name in figures):
            break
        figures = {name: min(figures[name], now) for name, now in measure().items()}
    return figures


@dataclasses.dataclass
class Row:
    """A line of the file."""

    now: int
    base: int
    percent: float
    why: str = ""

    def most(self, of_what=None):
        return (self.now if of_what is None else of_what) * (1 + self.percent / 100)

    def least(self):
        return self.now * (1 - self.percent / 100)

    def judge(self, now):
        """Return what to say of a figure: "ok", or what is wrong."""
        if now > self.most():
            return "MORE"
        if now < self.least():
            return "LESS: commit it (UPDATE=1)"
        if self.now > self.most(self.base) and not self.why:
            return f"MORE than in {BASE}: say why in {KNOWN.name}"
        return "ok"


def read_rows(path=KNOWN):
    rows = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, now, base, percent, *why = line.split(maxsplit=4)
            rows[name] = Row(int(now), int(base), float(percent), *why)
    return rows


def row_for(rows, name, figure):
    """Return a case's row, which a new case gets here."""
    return rows.setdefault(name, Row(round(figure), round(figure), PERCENT_MIN))


def write_rows(rows, path=KNOWN):
    head = ["# SPDX-License-Identifier: Apache-2.0",
            "# Instructions of the daemon for one operation. How they are measured, and what each",
            f"# column is: tools/bench/guard.py; base: commit {BASE}.",
            f"#{'case':14}{'now':>9}{'base':>9}{'percent':>9}  why"]
    lines = [f"{name:15}{row.now:9}{row.base:9}{row.percent:9.1f}  {row.why}".rstrip()
             for name, row in rows.items()]
    path.write_text("\n".join(head + lines) + "\n")


def tell(rows, figures):
    """Print the report, and return how many failed."""
    print(f"{'instructions':15}{'now':>9}{'kept':>9}{'':9}{'allowed':>9}  since {BASE}")
    failed = 0
    for name, now in figures.items():
        row = rows.get(name)
        said = row.judge(now) if row else "no figure to compare with"
        failed += said != "ok"
        print(f"{name:15}{now:9,.0f}" + (
            f"{row.now:9,}{now / row.now - 1:+9.1%}{row.percent:8.1f}%{now / row.base - 1:+9.1%}  "
            if row else "  ") + said)
    for name in rows.keys() - CASES.keys():
        print(f"{name:15} is in {KNOWN.name}, and no case")
        failed += 1
    return failed


def noise(times):
    """Return the figures of so many runs, by name."""
    seen = []
    for number in range(times):
        seen.append(measure())
        print(f"noise, run {number + 1} of {times}: " + ", ".join(
            f"{name} {figure:,.0f}" for name, figure in seen[-1].items()), flush=True)
    return {name: [figures[name] for figures in seen] for name in CASES}


def percent_for(figures):
    spread = (max(figures) - min(figures)) / min(figures) * 100
    return max(PERCENT_MIN, math.ceil(NOISE_TIMES * spread * 10) / 10)


def main():
    parser = argparse.ArgumentParser(prog="bench.guard", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep the figures")
    parser.add_argument("--noise", type=int, default=0, help="measure so often, and keep the noise")
    parser.add_argument("--base", help=f"the daemon of commit {BASE}: keep its figures as the base")
    options = parser.parse_args()
    rows = read_rows()
    hurry()
    try:
        if options.noise:
            for name, seen in noise(options.noise).items():
                row_for(rows, name, min(seen)).percent = percent_for(seen)
        elif options.base:
            for name, figure in measure(options.base).items():
                row_for(rows, name, figure).base = round(figure)
        else:
            figures = measure_beside(rows)
            failed = tell(rows, figures)
            if not options.update:
                print(f"{len(figures) - failed} passed, {failed} failed")
                sys.exit(failed > 0)
            for name, figure in figures.items():
                row_for(rows, name, figure).now = round(figure)
    except BenchError as error:
        sys.exit(f"bench-guard: {error}")
    write_rows({name: rows[name] for name in CASES})


if __name__ == "__main__":
    main()
