# SPDX-License-Identifier: Apache-2.0
"""The load generators: each call is one run, and returns rate, ops and latencies in ms."""

import concurrent.futures
import json
import re
import subprocess

from bench.server import BUILD, BenchError

RUN_S_MAX = 900


def run(program, words, flags, options):
    """Run one of our own programs, and return what it printed as JSON."""
    words = [*words, *(word for name, value in options.items() for word in (f"--{name}", value)),
             *flags]
    done = subprocess.run([str(word) for word in (BUILD / program, *words)],
                          capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if done.returncode:
        raise BenchError(f"{program} {' '.join(map(str, words[:2]))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def load(server, work, *, flags=(), units=1, **options):
    """Run bench-load. Each of its operations counts as `units` in rate and ops."""
    result = run("bench-load", ["--work", work, "--port", server.port], flags, options)
    result["rate"] *= units
    result["ops"] *= units
    return result


def commands(server, words, *, flags=(), **options):
    """Run bench-load's work `resp`: commands sent together, each counted."""
    flags = [word for command in words for word in ("--command", command)] + list(flags)
    one_of = "mix" in options
    return load(server, "resp", flags=flags, units=options.get("pipeline", 1) *
                (1 if one_of else len(words)), **options)


def together(calls):
    """Make the calls of load() or commands() at the same time, as one: rates and counts in sum, of
    the rest the worst."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda call: call(), calls))
    result = {name: max(part[name] for part in parts) for name in ("p50", "p99", "p999", "max",
                                                                  "most")}
    result.update({name: sum(part[name] for part in parts) for name in ("rate", "ops")})
    return {**result, "fewest": min(part["fewest"] for part in parts)}


def sqlite(store, flags=(), **options):
    """Run bench-sqlite. Latencies are those of a transaction."""
    return run("bench-sqlite", [store], flags, options)


def fill(server, keys, *words):
    """Run each command once for each key (and for a few more), one command after the other: in a
    pipeline where each command needs the one before it, each would be a commit of its own."""
    pipeline = 100
    for command in words:
        commands(server, [command], clients=20, pipeline=pipeline, keys=keys,
                 ops=-(-keys // pipeline))


def redis_benchmark(server, command, *, requests, connections=50, pipeline=1, keys=100000,
                    tls=False):
    """Run redis-benchmark, the neutral client. Latencies are those of a pipeline's round trip."""
    where = (["-p", server.tls_port, "--tls", "--cacert", server.cert] if tls
             else ["-p", server.port])
    done = subprocess.run(
        ["redis-benchmark", *map(str, where), "-c", str(connections), "-P", str(pipeline),
         "-n", str(requests), "-r", str(keys), "--precision", "3", *map(str, command)],
        capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    out = done.stdout.replace("\r", "\n")
    rate = re.search(r"throughput summary: ([\d.]+) requests per second", out)
    if done.returncode or not rate or "rror" in out + done.stderr:
        raise BenchError(f"redis-benchmark on {server.tag}: {(out + done.stderr)[-1000:]}")
    # Halving steps: 50 %, 75 %, ... 99.902 %, 99.951 % ...
    steps = [(float(part), float(ms)) for part, ms in re.findall(
        r"^([\d.]+)% <= ([\d.]+) milliseconds \(cum", out, re.M)]
    summary = re.search(r"max\n\s+([\d.\s]+)", out.split("latency summary")[1])
    _, _, p50, _, p99, most = map(float, summary[1].split()[:6])
    p999 = next((ms for part, ms in steps if part >= 99.9), most)
    return {"rate": float(rate[1]), "ops": requests, "p50": p50, "p99": p99, "p999": p999,
            "max": most}
