# SPDX-License-Identifier: Apache-2.0
"""Stockade beside others on this machine: python3 -m bench, with tools/ in PYTHONPATH.

Servers run in a temporary folder on free ports, each as durable as its documentation advises, and
take turns. Ratio: our rate over theirs; compare that between machines, not the rates.
"""

import argparse
import collections
import dataclasses
import fnmatch
import resource
import shutil
import signal
import sys
import tempfile

from bench import cases, table
from bench.measure import Progress, run_case
from bench.server import BenchError
from bench.stage import servers_for


QUICK_TAGS = ("stockade", "redis", "sqlite")


def parse():
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="GLOB", action="append",
                        help="cases by name; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each run")
    parser.add_argument("--quick", action="store_true", help="few cases, under a minute")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    parser.add_argument("--folder", help="where the servers keep their files (default: a temporary "
                        "one)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 3, 0.7
    return options


def chosen(options):
    every = cases.all_cases()
    if options.quick:
        every = [dataclasses.replace(case, contenders=[
            contender for contender in case.contenders if contender.tag in QUICK_TAGS])
            for case in every if case.quick]
    if options.only:
        every = [case for case in every
                 if any(fnmatch.fnmatch(case.name, glob) for glob in options.only)]
    if not every:
        sys.exit("bench: no such case; --list has their names")
    return every


def run(options, folder):
    stages = collections.defaultdict(list)
    for case in chosen(options):
        stages[case.keys].append(case)
    progress = Progress(sum(len(case.contenders) * (case.rounds or options.rounds)
                            for stage in stages.values() for case in stage))
    results = {}
    for keys, stage in stages.items():
        tags = {contender.tag for case in stage for contender in case.contenders}
        with servers_for(tags, folder, keys, progress) as servers:
            for case in stage:
                results[case.name] = run_case(case, servers, options, progress)
                progress.clear()
                print(table.text(case, results[case.name]), flush=True)
    return results


def main():
    options = parse()
    if options.list:
        print("\n".join(f"{case.name:20} {case.title}" for case in cases.all_cases()))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = tempfile.mkdtemp(prefix="stockade-bench-", dir=options.folder)
    try:
        run(options, folder)
    except BenchError as error:
        sys.exit(f"bench: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
