# SPDX-License-Identifier: Apache-2.0
"""What is measured, and which goals it has to reach. Tags name servers: see peers.py."""

import contextlib
import socket

from bench import clients, peers, postgres, waiting
from bench.measure import Case, Contender

KEY, RANDOM = "key:__rand_int__", "__rand_int__"
STOCKADE, REDIS, LUA = "Stockade", "Redis SET", "Redis, token checked in Lua"
REDIS_TLS = "Redis SET by TLS"
POSTGRES, ETCD = "PostgreSQL", "etcd put"
SQLITE = "raw SQLite, token checked"
STOCK = 10 ** 12


def pairs(label, tag, words, connections=50, pipeline=1, tls=False):
    """Measure with redis-benchmark. words(server) are the command."""
    def run(bout):
        def benchmark(requests):
            return clients.redis_benchmark(bout.server, words(bout.server), requests=requests,
                                           connections=connections, pipeline=pipeline,
                                           keys=bout.case.drawn or bout.case.keys, tls=tls)
        unit = connections * pipeline
        if bout.rate is None:  # a short run tells how many requests fill the time
            bout.rate = benchmark(max(unit, min(50 * unit, 20000)))["rate"]
        return benchmark(bout.requests(unit))
    return Contender(label, tag, run)


def load(label, tag, words, flags=(), **options):
    """Measure with bench-load. words(server) are commands that are sent together."""
    def run(bout):
        return clients.commands(bout.server, words(bout.server), flags=flags, keys=bout.case.keys,
                                time=bout.time, **options)
    return Contender(label, tag, run)


def puts(label, tag, work, pipeline=1):
    """Measure a work of bench-load that writes values to random keys."""
    def run(bout):
        return clients.load(bout.server, work, keys=bout.case.keys, time=bout.time,
                            pipeline=pipeline, units=pipeline)
    return Contender(label, tag, run)


def cycle(label, tag, work, flags=(), options=lambda server: {}, **more):
    def run(bout):
        return clients.load(bout.server, work, flags=flags, time=bout.time,
                            **options(bout.server), **more)
    return Contender(label, tag, run)


def sqlite(label, *flags):
    """Measure SQLite alone, with as many writes in a transaction as Stockade's last run had."""
    def run(bout):
        batch = max(1, round(bout.latest[STOCKADE].get("batch", 1)))
        return {**clients.sqlite(bout.server.store, flags, keys=bout.case.keys, batch=batch,
                                 time=bout.time), "batch": batch}
    return Contender(label, "sqlite", run)


def pgbench(label, script, tag="postgres", units=1):
    """Measure 50 direct connections. script(keys) is a transaction, which counts as `units`."""
    def run(bout):
        return postgres.pgbench(bout.server, script(bout.case.keys), seconds=bout.seconds,
                                units=units)
    return Contender(label, tag, run)


def direct(label, number=1, tag="postgres", units=None, pipeline=True):
    """Measure checked updates, so many in a transaction."""
    return pgbench(label, lambda keys: postgres.updates(keys, number, pipeline=pipeline), tag,
                   units or number)


def fixed(*words):
    return lambda server: words


def script(text, *words):
    """EVALSHA of a script that was loaded before."""
    return lambda server: ("EVALSHA", server.script(text), *words)


def writes(keys, pipeline, goals, others=(), quick=False, ceiling=None):
    how = "one by one" if pipeline == 1 else f"pipeline {pipeline}"
    return Case(
        f"write-{pipeline}-{keys}", f"fenced write, {how}, {keys:,} keys", keys,
        [pairs(STOCKADE, "stockade", fixed("FENCED", 1, "SET", KEY, RANDOM), pipeline=pipeline),
         pairs(REDIS, "redis", fixed("SET", KEY, RANDOM), pipeline=pipeline),
         pairs(LUA, "redis", script(peers.FENCED_SET, 1, KEY, 1, RANDOM), pipeline=pipeline),
         sqlite(SQLITE, "--check"), sqlite("raw SQLite, unchecked"), *others],
        goals, quick=quick, ceiling=ceiling or {})


def tls_writes(pipeline):
    how = "one by one" if pipeline == 1 else f"pipeline {pipeline}"
    ours, theirs = fixed("FENCED", 1, "SET", KEY, RANDOM), fixed("SET", KEY, RANDOM)
    return Case(f"tls-write-{pipeline}", f"fenced write by TLS, {how}, 100,000 keys", 100000,
                [pairs("Stockade by TLS", "stockade", ours, pipeline=pipeline, tls=True),
                 pairs(STOCKADE, "stockade", ours, pipeline=pipeline),
                 pairs(REDIS_TLS, "redis", theirs, pipeline=pipeline, tls=True),
                 pairs(REDIS, "redis", theirs, pipeline=pipeline)],
                {STOCKADE: 0.8, REDIS_TLS: 1.0})


def reads(pipeline, goal):
    how = "one by one" if pipeline == 1 else f"pipeline {pipeline}"
    return Case(f"read-{pipeline}", f"read, {how}", 100000,
                [pairs(STOCKADE, "stockade", fixed("GET", KEY), pipeline=pipeline),
                 pairs("Redis GET", "redis", fixed("GET", KEY), pipeline=pipeline)],
                {"Redis GET": goal}, quick=True)


@contextlib.contextmanager
def stock(servers):
    """Counters to be decremented, under token 1."""
    clients.fill(servers["stockade"], 10000, "ACQUIRE stock:{next} 86400000",
                 f"FENCED 1 HSET stock:{{next}} stock {STOCK}")
    clients.fill(servers["redis"], 10000, "SET token:stock:{next} 1",
                 f"HSET stock:{{next}} stock {STOCK}")
    yield


def decrements(pipeline):
    how = "one by one" if pipeline == 1 else f"pipeline {pipeline}"
    ours = "FENCED 1 HINCRBY stock:{key} stock -1 MIN 0"

    def theirs(server):
        return (f"EVALSHA {server.script(peers.FENCED_DECREMENT)} 1 stock:{{key}} 1",)
    return Case(f"decrement-{pipeline}", f"bounded decrement, {how}, 10,000 keys", 10000,
                [load(STOCKADE, "stockade", fixed(ours), pipeline=pipeline),
                 load(LUA, "redis", theirs, pipeline=pipeline)], around=stock)


def transactions():
    ours = ["FENCED 1 SET key:{key} {value}"] * 8
    keys = " ".join(["key:{key}"] * 8)

    def lua(server):
        return (f"EVALSHA {server.script(peers.FENCED_EIGHT)} 8 {keys} 1" + " {value}" * 8,)
    return Case("transaction", "transaction of 8 fenced writes", 100000,
                [cycle_of(STOCKADE, "stockade", ["MULTI", *ours, "EXEC"]),
                 cycle_of("Stockade, pipeline of 8", "stockade", ours),
                 cycle_of("Redis MULTI", "redis",
                          ["MULTI", *["SET key:{key} {value}"] * 8, "EXEC"]),
                 load(LUA, "redis", lua)], unit="transactions")


def cycle_of(label, tag, words):
    """All the commands together are one operation."""
    def run(bout):
        result = clients.commands(bout.server, words, keys=bout.case.keys, time=bout.time)
        return {**result, "rate": result["rate"] / len(words), "ops": result["ops"] / len(words)}
    return Contender(label, tag, run)


MUTEX, LOCK, ON_REDIS = "etcd mutex", "Redis lock", "Stockade on Redis"
POLLING = LOCK + ", asks each 20 ms"


def unlock(server):
    return {"script": server.script(peers.UNLOCK)}


def cycles():
    """Take the lease, read, write, give it back, in as few round trips as possible."""
    ours = cycle("Stockade", "stockade", "lease-cycle")
    on_redis = cycle(ON_REDIS, "stockade-redis", "lease-cycle")
    theirs = cycle(LOCK, "redis", "lock-cycle", options=unlock)
    yield Case("cycle-redis", "lease cycle on Redis, distinct keys", 100000, [on_redis, theirs],
               {LOCK: 1.0}, unit="cycles")
    yield Case("cycle-redis-disk", "lease cycle on a Redis with less of a disk, distinct keys",
               100000,
               [cycle("Stockade on Redis, everysec", "stockade-redis-everysec", "lease-cycle"),
                cycle("Stockade on Redis without a disk", "stockade-redis-none", "lease-cycle"),
                on_redis, theirs],
               {LOCK: 0.9}, unit="cycles")
    yield Case("cycle", "lease cycle, distinct keys", 100000,
               [ours, on_redis, theirs, cycle(MUTEX, "etcd", "etcd-cycle"),
                cycle("ZooKeeper recipe", "zookeeper", "zookeeper-cycle")],
               {ON_REDIS: 1.5, MUTEX: 5}, unit="cycles")
    yield Case("cycle-audit", "lease cycle with an audit, distinct keys", 100000,
               [cycle("Stockade with --audit", "stockade-audit", "lease-cycle"), ours,
                cycle("Stockade with --audit-durable all", "stockade-audit-durable",
                      "lease-cycle")],
               {"Stockade": 0.8}, unit="cycles")
    hot = ["--hot"]
    yield Case("cycle-hot", "lease cycle, 50 clients on one key", 100000,
               [cycle("Stockade", "stockade", "lease-cycle", hot),
                cycle(ON_REDIS, "stockade-redis", "lease-cycle", hot),
                cycle(POLLING, "redis", "lock-cycle", hot, unlock),
                cycle(MUTEX, "etcd", "etcd-cycle", hot),
                cycle("ZooKeeper recipe", "zookeeper", "zookeeper-cycle", hot),
                Contender("Stockade on Redis, two daemons", "stockade-redis",
                          lambda bout: waiting.shared(
                              [bout.server, bout.servers["stockade-redis-2"]], bout.seconds))],
               {MUTEX: 5}, unit="cycles", ceiling={"unequal": 1.2}, p99_parts={POLLING: 0.1})


def wakes():
    """How long it takes from RELEASE to the next client's grant."""
    def between(label, here, there):
        return Contender(label, here, lambda bout: waiting.wake_up(
            bout.server, bout.servers[there], bout.seconds))
    yield Case("wake", "from RELEASE to the grant of who waits", 100000,
               [between(STOCKADE, "stockade", "stockade"),
                between(ON_REDIS, "stockade-redis", "stockade-redis"),
                between("between two daemons on one Redis", "stockade-redis",
                        "stockade-redis-2")], unit="wake-ups")
    yield Case("order", "1,000 wait in line for one key, all served in turn", 100000,
               [Contender(STOCKADE, "stockade", lambda bout: waiting.order(bout.server, 1000))],
               unit="grants", rounds=1)


def acquires():
    words = fixed("ACQUIRE", "lease:__rand_int__", 600000)
    case = Case("acquire", "ACQUIRE alone, a new key each", 100000,
                [pairs(STOCKADE, "stockade", words),
                 pairs(ON_REDIS, "stockade-redis", words),
                 pairs("Redis, lock and token in Lua", "redis",
                       script(peers.ACQUIRE, 1, "lease:__rand_int__", 600000))])
    case.drawn = 10 ** 9
    return case


def mixed():
    ours = ("GET key:{key}", "FENCED 1 SET key:{key} {value}")
    return Case("mixed", "80 reads to 20 fenced writes, one by one", 100000,
                [load(STOCKADE, "stockade", fixed(*ours), mix=80),
                 load("Redis GET and SET", "redis", fixed(ours[0], "SET key:{key} {value}"),
                      mix=80)])


def connections(number):
    return Case(f"connections-{number}", f"fenced write, connections: {number:,}", 100000,
                [pairs(STOCKADE, "stockade", fixed("FENCED", 1, "SET", KEY, RANDOM), number),
                 pairs(REDIS, "redis", fixed("SET", KEY, RANDOM), number)])


def half_rate():
    """A minute at half the peak rate: does anything, such as a checkpoint, cause stalls?"""
    def steady(label, tag, words):
        def run(bout):
            peak = clients.commands(bout.server, words, keys=bout.case.keys, time="3000ms")
            return clients.commands(bout.server, words, keys=bout.case.keys, time=bout.time,
                                    rate=max(1, int(peak["rate"] / 2)))
        return Contender(label, tag, run)
    return Case("half-rate", "fenced write, one by one, a minute at half the peak rate", 100000,
                [steady(STOCKADE, "stockade", ["FENCED 1 SET key:{key} {value}"]),
                 steady(REDIS, "redis", ["SET key:{key} {value}"])],
                seconds=60, rounds=1, ceiling={"p99": 2, "gap_ms": 50})


def idle(number=10000):
    """Connections that do nothing, beside 50 that do."""
    words = fixed("FENCED", 1, "SET", KEY, RANDOM)
    alone = pairs("Stockade", "stockade", words)
    known = {}  # the server's memory before the first of them

    def run(bout):
        before = known.setdefault(bout.server, bout.server.memory_bytes())
        sockets = [socket.create_connection(("127.0.0.1", bout.server.port))
                   for _ in range(number)]
        result = alone.run(bout)
        result["memory_mb"] = bout.server.memory_bytes() / 1e6
        result["more_memory_mb"] = result["memory_mb"] - before / 1e6
        for idler in sockets:
            idler.close()
        bout.server.wait_for(lambda: bout.server.memory_bytes() and
                             int(bout.server.info("connected_clients")) < number)
        return result
    label = f"Stockade, {number:,} idle beside"
    return Case("idle", f"fenced write, 50 connections, {number:,} idle ones beside", 100000,
                [Contender(label, "stockade", run), alone], {"Stockade": 0.9},
                ceiling={"more_memory_mb": 128})


def curve(keys):
    """How the cost grows with the number of keys, where no other case shows it."""
    case = writes(keys, 16, {})
    case.contenders = [contender for contender in case.contenders
                       if contender.tag in ("stockade", "sqlite")]
    case.name = f"curve-{keys}"
    case.asked = "huge" if keys > 1000000 else ""
    return case


ON_POSTGRES, BY_HAND = "Stockade on PostgreSQL", "PostgreSQL, lease by hand"


def on_postgres(title="", suffix=""):
    """The store in PostgreSQL beside direct connections to the same server; `suffix`: of the tags
    where a network is in between."""
    ours, theirs = "stockade-pg" + suffix, "postgres" + suffix
    write, eight = fixed("FENCED", 1, "SET", KEY, RANDOM), ["FENCED 1 SET key:{key} {value}"] * 8

    def case(name, what, contenders, goals, **more):
        return Case(f"pg-{name}{suffix}", f"{what}{title}", 100000, contenders, goals,
                    p99_parts={contenders[1].label: 1.5}, **more)
    yield case("write-1", "fenced write in PostgreSQL, one by one",
               [pairs(ON_POSTGRES, ours, write), direct(POSTGRES, tag=theirs)], {POSTGRES: 2},
               quick=not suffix)
    yield case("write-16", "fenced write in PostgreSQL, pipeline 16",
               [pairs(ON_POSTGRES, ours, write, pipeline=16),
                direct("PostgreSQL, 16 in a transaction", 16, theirs),
                direct(POSTGRES, tag=theirs)], {POSTGRES: 4}, quick=not suffix)
    yield case("transaction", "transaction of 8 fenced writes in PostgreSQL",
               [cycle_of(ON_POSTGRES, ours, ["MULTI", *eight, "EXEC"]),
                direct(POSTGRES, 8, theirs, 1, pipeline=False),
                direct("PostgreSQL, all statements in one trip", 8, theirs, 1)],
               {POSTGRES: 2}, unit="transactions")
    mutex = [] if suffix else [cycle(MUTEX, "etcd", "etcd-cycle")]
    yield case("cycle", "lease cycle in PostgreSQL, distinct keys",
               [cycle(ON_POSTGRES, ours, "lease-cycle"),
                pgbench(BY_HAND, lambda keys: postgres.BY_HAND.format(apart=keys // 50), theirs),
                *mutex], {BY_HAND: 2, MUTEX: 5}, unit="cycles")
    yield case("read", "read in PostgreSQL, one by one",
               [pairs(ON_POSTGRES, ours, fixed("GET", KEY)),
                pgbench(POSTGRES, lambda keys: postgres.READ.format(keys=keys), theirs)],
               {POSTGRES: 0.5})


def two_daemons():
    """Two of them on different keys of one database, with half of the clients each, beside one."""
    def run(bout):
        return clients.together([
            lambda server=server, keys=keys: clients.commands(
                server, [f"FENCED 1 SET {keys}:{{key}} {{value}}"], clients=25,
                keys=bout.case.keys, time=bout.time)
            for server, keys in ((bout.servers["stockade-pg"], "key"), (bout.server, "two"))])
    one = "Stockade on PostgreSQL, one daemon"
    return Case("pg-two", "fenced write in PostgreSQL, one by one, two daemons", 100000,
                [Contender("Stockade on PostgreSQL, two daemons", "stockade-pg-2", run),
                 load(one, "stockade-pg", fixed("FENCED 1 SET key:{key} {value}"))], {one: 0.8})


def old_snapshot():
    """What PostgreSQL cannot clean up meanwhile piles up for both."""
    for case in on_postgres(", under an old snapshot"):
        if case.name.startswith("pg-write"):
            case.name += "-snapshot"
            case.around, case.seconds, case.quick = postgres.old_snapshot, 10, False
            yield case


def guards():
    """What a guard costs who writes SQL of its own, with present() and by column."""
    def write(label, table, begin=False, rows=1, connections=50):
        def run(bout):
            count = min(rows, bout.case.keys // 2)
            script = postgres.guard_script(bout.case.keys, table, begin, count)
            return postgres.pgbench(bout.servers["postgres"], script, seconds=bout.seconds,
                                    units=count, clients=connections, database=postgres.SHOP)
        return Contender(label, "stockade-pg", run)

    def case(name, what, goal, table="guarded", **how):
        bare = "bare UPDATE"
        label = "UPDATE under a guard, " + ("with present()" if table == "guarded" else "by column")
        return Case(f"pg-guard{name}", what, 100000,
                    [write(label, table, **how), write(bare, "bare", **how)], {bare: goal},
                    around=postgres.guarded,
                    seconds=10)  # each new connection compiles the functions first
    yield case("-column", "UPDATE of one row, which assigns its token", 0.8, table="assigned")
    yield case("-column-rows", "UPDATE of 10,000 rows of as many resources in one statement, which "
               "assigns their token, one client", 0.3, table="assigned", rows=10000, connections=1)
    yield case("", "UPDATE of one row in one trip", 0.6)
    yield case("-begin", "UPDATE of one row, with BEGIN and COMMIT", 0.6, begin=True)
    yield case("-rows", "UPDATE of 10,000 rows of as many resources in one statement, one client",
               0.5, rows=10000, connections=1)


def growth(keys):
    words = fixed("FENCED", 1, "SET", KEY, RANDOM)
    return Case(f"growth-{keys}", f"fenced write in PostgreSQL, {keys:,} keys", keys,
                [pairs(ON_POSTGRES, "stockade-pg", words),
                 pairs(ON_POSTGRES + ", pipeline 16", "stockade-pg", words, pipeline=16),
                 direct(POSTGRES)], asked="growth")


def all_cases():
    return [
        writes(1000, 1, {}), writes(1000, 16, {}),
        decrements(1), decrements(16), curve(10000),
        writes(100000, 1, {REDIS: 1.0, LUA: 1.25, POSTGRES: 2.5, ETCD: 3.5},
               [direct(POSTGRES), puts(ETCD, "etcd", "etcd-put"),
                puts("ZooKeeper set", "zookeeper", "zookeeper-set")], quick=True),
        writes(100000, 16, {REDIS: 1.0, LUA: 2, SQLITE: 0.85},
               [direct("PostgreSQL, 16 in a transaction", 16),
                puts("ZooKeeper set", "zookeeper", "zookeeper-set", 16)], quick=True),
        tls_writes(1), tls_writes(16),
        reads(1, 1.0), reads(16, 0.8), mixed(), transactions(), *cycles(), *wakes(),
        acquires(),
        *on_postgres(), two_daemons(), *guards(),
        *on_postgres(", 0.5 ms away", "-500us"), *on_postgres(", 2 ms away", "-2000us"),
        *old_snapshot(),
        connections(1), half_rate(),
        idle(),  # first: the daemon keeps the memory that it once needed for many connections
        connections(1000), connections(10000),
        writes(1000000, 1, {}), writes(1000000, 16, {REDIS: 0.5, SQLITE: 0.85},
                                       ceiling={"p99": 20}),
        curve(10000000),
        *(growth(keys) for keys in (1000, 10000, 100000, 1000000)),
    ]
