# SPDX-License-Identifier: Apache-2.0
"""Stockade beside others on this machine: python3 -m bench, with tools/ in PYTHONPATH.

Servers run in a temporary folder on free ports, each as durable as its documentation advises, and
take turns. Ratio: our rate over theirs; compare that between machines, not the rates.
"""

import argparse
import collections
import dataclasses
import fnmatch
import json
import pathlib
import resource
import shutil
import signal
import sys
import tempfile

from bench import cases, durable, machine, postgres, report
from bench.measure import Progress, run_case
from bench.peers import servers_for
from bench.server import BenchError


CHECKED_KEYS = 100000
QUICK_PEERS = "stockade,redis,sqlite"


def quick_peers():
    try:
        postgres.program("initdb")
    except BenchError as error:
        print(f"PostgreSQL is left out: {error}\n")
        return QUICK_PEERS
    return QUICK_PEERS + ",stockade-pg,postgres"


def parse():
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="GLOB", action="append",
                        help="cases by name; may be repeated")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--seconds", type=float, help="of each run (default 3)")
    parser.add_argument("--keys", type=int, metavar="N", help="at most so many in each case")
    parser.add_argument("--peers", metavar="TAG,TAG", help="these only: stockade, stockade-redis, "
                        "stockade-pg, redis, sqlite, postgres, etcd, zookeeper")
    parser.add_argument("--quick", action="store_true", help="few cases, under a minute")
    parser.add_argument("--huge", action="store_true",
                        help="ten million keys, too: minutes and gigabytes more")
    parser.add_argument("--growth", action="store_true",
                        help="how PostgreSQL's cost grows with the keys, too: minutes more")
    parser.add_argument("--out", metavar="FOLDER", help="report.html and results.json go there")
    parser.add_argument("--page", metavar="FILE", help="the same as Markdown")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    parser.add_argument("--folder", help="where the servers keep their files (default: a temporary "
                        "one)")
    options = parser.parse_args()
    if options.quick:
        options.peers = options.peers or quick_peers()
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.6 if options.quick else 3)
    return options


def chosen(options):
    every = cases.all_cases()
    if options.quick:
        every = [case for case in every if case.quick]
    if options.peers:
        every = [dataclasses.replace(case, contenders=contenders) for case in every if (
            contenders := [contender for contender in case.contenders
                           if contender.tag in options.peers.split(",")])]
    if options.keys:
        every = [dataclasses.replace(case, keys=min(case.keys, options.keys)) for case in every]
    if options.only:
        every = [case for case in every
                 if any(fnmatch.fnmatch(case.name, glob) for glob in options.only)]
    else:
        every = [case for case in every if not case.asked or getattr(options, case.asked)]
    if not every:
        sys.exit("bench: no such case; --list has their names")
    return every


def write_reports(options, every, results, about, found):
    every = [case for case in every if case.name in results]
    if options.out:
        out = pathlib.Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.html").write_text(report.page(every, results, about, found))
        (out / "results.json").write_text(json.dumps({"about": about, "results": results},
                                                     indent=1))
    if options.page:
        pathlib.Path(options.page).write_text(report.markdown(every, results, about, found))


def command(options):
    """Return the command that repeats this run."""
    words = ["make", "bench-quick" if options.quick else "bench"]
    if options.only:
        words.append(f"CASES='{' '.join(options.only)}'")
    words += [f"ROUNDS={options.rounds}", f"RUN_SECONDS={options.seconds:g}"]
    return " ".join(words + ["HUGE=1"] * options.huge + ["GROWTH=1"] * options.growth)


def run(options, folder):
    about = machine.describe(folder)
    about["command"] = command(options)
    print("\n".join(f"{name}: {text}" for name, text in about.items()) + "\n", flush=True)
    every = chosen(options)
    stages = collections.defaultdict(list)
    for case in every:
        stages[case.keys].append(case)
    progress = Progress(sum(len(case.contenders) * (case.rounds or options.rounds)
                            for stage in stages.values() for case in stage))
    results, found = {}, {}
    for keys, stage in stages.items():
        tags = {contender.tag for case in stage for contender in case.contenders}
        with servers_for(tags, folder, keys, progress) as servers:
            for case in stage:
                results[case.name] = run_case(case, servers, options, progress)
                progress.clear()
                print(report.text(case, results[case.name]), flush=True)
            if keys == max(stages, key=lambda keys: keys <= CHECKED_KEYS and keys) \
                    and not options.quick:
                found = check(servers, keys, progress)
        write_reports(options, every, results, about, found)  # in case it ends early
    if options.out:
        print(f"report: {options.out}/report.html")


def check(servers, keys, progress):
    """Return tag: writes acknowledged before a kill -9, and keys whose last one was found again."""
    found = {}
    for tag, server in servers.items():
        if tag in durable.CHECKED:
            progress.step(f"{tag}: is there what was acknowledged?", 0)
            found[tag] = durable.check(tag, server, keys)
            progress.clear()
            print(f"{tag}: killed after {found[tag][0]:,} acknowledged writes; the last ones of "
                  f"{found[tag][1]:,} keys are there", flush=True)
    print()
    return found


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
