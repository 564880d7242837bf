// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

/**
 * A way to a Stockade daemon: leases with fencing tokens, and writes that are checked against them.
 *
 * <pre>{@code
 * try (Stockade shop = Stockade.connect("stockade://127.0.0.1:7379");
 *      Lease lease = shop.lease("sku:1042", 30_000, 10_000)) {
 *     long left = lease.take(1); // Stale: the lease passed on; SoldOut: none is left
 * }
 * }</pre>
 *
 * <p><b>Threads.</b> One Stockade serves a whole program: any number of threads may use it and its
 * leases at once, virtual ones too. It has one background thread, and at most 65 connections,
 * however many threads wait for leases (and one more for each {@link #leaseAll} that waits).
 *
 * <p><b>Time.</b> A call takes at most the timeout, 5 seconds unless said otherwise, and a call
 * that takes a lease so much more as it may wait. Where the connection breaks or the daemon is busy
 * meanwhile, it is sent again by itself. That is harmless: each write has an ID of its own, and the
 * daemon answers a repeat with the first reply. Only what cannot have one ({@link #revoke}, SQL
 * that defines tables) is not sent twice.
 *
 * <p><b>Errors</b> are unchecked, and of the base {@link StockadeException}.
 */
public final class Stockade implements AutoCloseable {
    static final long TTL_DEFAULT_MS = 30_000;
    static final long WAIT_DEFAULT_MS = 10_000;
    private static final long TTL_MIN_MS = 10;
    private static final long DAY_MS = 86_400_000;
    /** Stands for no limit: a hundred years, which System.nanoTime() can count. */
    static final long FOREVER_MS = 100 * 365 * DAY_MS;
    private static final int SWEEP_MIN = 64;
    private static final Duration TIMEOUT = Duration.ofSeconds(5);
    /** test_reads.py holds this list to the daemon's, and to those of the other packages. */
    private static final Set<String> READS =
        Set.of("DBSIZE", "ECHO", "EXISTS", "GET", "GETRANGE", "HEXISTS", "HGET", "HGETALL",
               "HISTORY", "HKEYS", "HLEN", "HMGET", "HSCAN", "HSTRLEN", "HVALS", "INFO", "LEASE",
               "LEASES", "MGET", "PING", "PTTL", "RECEIPT", "REFUSALS", "SCAN", "STRLEN", "TIME",
               "TTL", "TYPE", "WAITERS");

    private final Keeper keeper;
    private final Calls calls;
    /** What each thread holds by its locks. */
    final Map<FencedLock.Key, FencedLock.Hold> holds = new ConcurrentHashMap<>();
    private volatile int sweepAt = SWEEP_MIN; /* so many holds */

    /** With threads that a test makes. */
    Stockade(Address address, Duration timeout, ThreadFactory threads) {
        long millis = inRange("timeout", timeout.toMillis(), 1);
        try {
            keeper = new Keeper(address, threads);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        calls = new Calls(address, TimeUnit.MILLISECONDS.toNanos(millis), keeper);
        try {
            calls.connect();
        } catch (RuntimeException failed) {
            close();
            throw failed;
        }
    }

    /**
     * Connect to a daemon. One that cannot be reached is told at once.
     *
     * @param uri {@code stockade://[user:password@]host[:7379]}; %XX stands for a byte of the
     *     password
     * @return the way to it
     * @throws Unreachable nobody answers there
     * @throws IllegalArgumentException that is no such URI
     */
    public static Stockade connect(String uri) {
        return connect(uri, TIMEOUT);
    }

    /**
     * Connect to a daemon.
     *
     * @param uri as above
     * @param timeout how long a call may take, up to a day
     * @return the way to it
     */
    public static Stockade connect(String uri, Duration timeout) {
        return connect(uri, timeout, Address.CLIENT_NAME);
    }

    /**
     * Connect to a daemon, and say who this is.
     *
     * @param uri as above
     * @param timeout as above
     * @param clientName what the daemon's page and {@code stockade why} call this process: 1 to 64
     *     visible characters of ASCII. By default PROGRAM-PID@HOST; each process needs one of its
     *     own
     * @return the way to it
     */
    public static Stockade connect(String uri, Duration timeout, String clientName) {
        if (!clientName.matches("[!-~]{1,64}")) {
            throw new IllegalArgumentException("a client's name is 1 to 64 visible characters");
        }
        return new Stockade(Address.parse(uri).named(clientName), timeout, Keeper::daemonThread);
    }

    /* Leases. */

    /**
     * Take the lease on a resource for 30 seconds, which are renewed for as long as it is held.
     * Waits for it in line, up to 10 seconds.
     *
     * @param resource its name: a key, 1 to 512 bytes
     * @return the lease, to be closed
     * @throws Held somebody else has it
     * @throws LeaseDown the lease service does not answer
     * @throws Interrupted the thread was interrupted while it waited
     */
    public Lease lease(String resource) {
        return lease(resource, TTL_DEFAULT_MS, WAIT_DEFAULT_MS);
    }

    /**
     * Take the lease on a resource. It is renewed by itself every third of its TTL, until it is
     * closed; the TTL is how long others wait where this program dies or is cut off.
     *
     * @param resource its name: a key, 1 to 512 bytes
     * @param ttlMillis from 10 to 86,400,000
     * @param waitMillis how long to wait in line; 0: not at all
     * @return the lease, to be closed
     */
    public Lease lease(String resource, long ttlMillis, long waitMillis) {
        try {
            return new Lease(this, resource, acquire(resource, ttlMillis,
                                                     inRange("wait", waitMillis, 0), true, true,
                                                     null));
        } catch (InterruptedException now) {
            Thread.currentThread().interrupt();
            throw new Interrupted("interrupted while it waited for the lease on " + resource);
        }
    }

    /**
     * Take the lease on a resource.
     *
     * @param resource its name: a key, 1 to 512 bytes
     * @param ttl as above
     * @param wait as above
     * @return the lease, to be closed
     */
    public Lease lease(String resource, Duration ttl, Duration wait) {
        return lease(resource, ttl.toMillis(), wait.toMillis());
    }

    /**
     * Stand for election: wait without end for the lease by which this program leads, with a TTL of
     * 30 seconds.
     *
     * @param name what it stands for: a key, 1 to 512 bytes
     * @return its term; to close it steps down
     * @throws Interrupted the thread was interrupted while it waited
     */
    public Lease lead(String name) {
        return lead(name, TTL_DEFAULT_MS);
    }

    /**
     * Stand for election: wait for the lease by which this program leads. That goes on through
     * outages of the daemon and of the lease service, and ends by an interrupt. {@link
     * Lease#onLost} is called at once where the term is revoked, and else with a tenth of the TTL
     * to go (and a hundredth and 2 ms): before anybody else may lead. What is written under the
     * term is judged by its token, whenever it comes.
     *
     * <pre>{@code
     * try (Lease term = shop.lead("nightly", 10_000)) {
     *     while (term.isValid()) {
     *         term.set(round()); // Stale where another leads by now
     *     }
     * }
     * }</pre>
     *
     * @param name what it stands for: a key, 1 to 512 bytes
     * @param ttlMillis how long nobody leads where the leader dies: from 10 to 86,400,000
     * @return its term; to close it steps down
     * @throws Interrupted the thread was interrupted while it waited
     */
    public Lease lead(String name, long ttlMillis) {
        return new Election(this, name, ttlMillis, -1).stand();
    }

    /**
     * Stand for election, for a limited time.
     *
     * @param name as above
     * @param ttlMillis as above
     * @param waitMillis how long to stand, up to a day
     * @return its term; to close it steps down
     * @throws Held another led until then; or what else was the matter last
     */
    public Lease lead(String name, long ttlMillis, long waitMillis) {
        return new Election(this, name, ttlMillis, inRange("wait", waitMillis, 0)).stand();
    }

    /**
     * Stand for election.
     *
     * @param name as above
     * @param ttl as above
     * @return its term; to close it steps down
     */
    public Lease lead(String name, Duration ttl) {
        return lead(name, ttl.toMillis());
    }

    /**
     * Stand for election, for a limited time.
     *
     * @param name as above
     * @param ttl as above
     * @param wait as above
     * @return its term; to close it steps down
     */
    public Lease lead(String name, Duration ttl, Duration wait) {
        return lead(name, ttl.toMillis(), wait.toMillis());
    }

    /**
     * Take the leases on several resources: all of them or none. Those who ask for crossing sets
     * never wait for each other in a circle.
     *
     * @param resources their names
     * @param ttlMillis as for one
     * @param waitMillis as for one
     * @return the leases, to be closed
     */
    public Leases leaseAll(Collection<String> resources, long ttlMillis, long waitMillis) {
        long ttl = inRange("ttl", ttlMillis, TTL_MIN_MS);
        long wait = inRange("wait", waitMillis, 0);
        resources.forEach(Stockade::checkName);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(wait);
        Calls.Answer answer;
        do { /* where what was granted to an attempt without a reply is over, with another ID */
            String id = Request.newId();
            long left = deadline - System.nanoTime();
            try {
                answer = left > 0 ? calls.runAlone(Calls.Kind.WRITE,
                                                   () -> basket(resources, ttl, deadline, id), left)
                                  : calls.run(Calls.Kind.WRITE,
                                              basket(resources, ttl, deadline, id));
            } catch (Unsure silent) {
                new Debt(keeper, List.copyOf(resources),
                         basketWords(resources, ttl, System.nanoTime(), id),
                         TimeUnit.MILLISECONDS.toNanos(ttl)).begin();
                throw new Unreachable(silent.getMessage());
            }
        } while (answer.reply() instanceof Decoder.ErrorReply error && error.is("STALE"));
        if (!(Calls.check(answer.reply()) instanceof List<?> tokens)) {
            throw new Held("somebody else holds one of " + resources);
        }
        List<Lease> leases = new ArrayList<>();
        for (String resource : resources) {
            leases.add(new Lease(this, resource, new Grant(
                keeper, resource, (Long) tokens.get(leases.size()), null)));
        }
        Leases all = new Leases(leases);
        try {
            for (Lease lease : leases) {
                lease.begin(answer.askedAt(), ttl);
            }
        } catch (RuntimeException lost) {
            all.close();
            throw lost;
        }
        return all;
    }

    /**
     * Take the leases on several resources: all of them or none.
     *
     * @param resources their names
     * @param ttl as above
     * @param wait as above
     * @return the leases, to be closed
     */
    public Leases leaseAll(Collection<String> resources, Duration ttl, Duration wait) {
        return leaseAll(resources, ttl.toMillis(), wait.toMillis());
    }

    /**
     * A lock on a resource, which is renewed for as long as it is held, and ends 30 seconds after
     * this program does.
     *
     * @param resource its name: a key, 1 to 512 bytes
     * @return the lock; nothing is asked of the daemon yet
     */
    public FencedLock lock(String resource) {
        return lock(resource, Duration.ofMillis(TTL_DEFAULT_MS));
    }

    /**
     * A lock on a resource.
     *
     * @param resource its name: a key, 1 to 512 bytes
     * @param ttl how long others wait where this program dies
     * @return the lock; nothing is asked of the daemon yet
     */
    public FencedLock lock(String resource, Duration ttl) {
        return new FencedLock(this, checkName(resource),
                              inRange("ttl", ttl.toMillis(), TTL_MIN_MS));
    }

    /**
     * End whatever lease there is on a resource. Its holder's next write is {@link Stale}.
     *
     * @param resource its name
     * @return the token that was retired; 0: none was ever granted
     */
    public long revoke(String resource) {
        Object token = calls.one(Calls.Kind.ONCE, Request.of("REVOKE", checkName(resource)));
        return token instanceof Long retired ? retired : 0;
    }

    private static Request basket(Collection<String> resources, long ttl, long deadline,
                                  String id) {
        return Request.of(basketWords(resources, ttl, deadline, id)).withId(id);
    }

    /** Waits for what is left until then. */
    private static Object[] basketWords(Collection<String> resources, long ttl, long deadline,
                                        String id) {
        List<Object> words = new ArrayList<>(List.of("ACQUIREALL", ttl, resources.size()));
        words.addAll(resources);
        long wait = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (wait > 0) {
            words.addAll(List.of("WAIT", wait));
        }
        words.addAll(List.of("ID", id));
        return words.toArray();
    }

    /** Take a lease; Held where the time to wait was over. `kept`: it is renewed. */
    Grant acquire(String resource, long ttlMillis, long waitMillis, boolean interruptible,
                  boolean kept, Thread owner) throws InterruptedException {
        long ttlMs = inRange("ttl", ttlMillis, TTL_MIN_MS);
        long ttl = TimeUnit.MILLISECONDS.toNanos(ttlMs);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMillis);
        checkName(resource);
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException();
        }
        for (;;) {
            String id = Request.newId();
            Request request =
                waitMillis > 0 ? Request.of("ACQUIRE", resource, ttlMs, "QUEUE", "ID", id)
                               : Request.of("ACQUIRE", resource, ttlMs, "ID", id);
            Calls.Answer answer;
            try {
                answer = calls.run(Calls.Kind.WRITE, request.withId(id));
            } catch (Unsure silent) {
                new Place(keeper, resource, ttl, id, deadline, calls.timeout()).cleanUp();
                throw new Unreachable(silent.getMessage());
            }
            if (answer.reply() instanceof Decoder.ErrorReply error && error.is("STALE")) {
                continue; /* what was granted to an attempt without a reply is over */
            }
            Calls.check(answer.reply());
            Place.Granted granted = Place.granted(answer.reply(), answer.askedAt());
            if (granted == null && waitMillis > 0) {
                granted = new Place(keeper, resource, ttl, id, deadline, calls.timeout())
                              .await(interruptible);
            }
            if (granted == null) {
                throw new Held("somebody else holds the lease on " + resource);
            }
            Grant grant = new Grant(keeper, resource, granted.token(), owner);
            grant.begin(granted.askedAt(), ttl, granted.left(), kept);
            return grant;
        }
    }

    /** A thread holds it. Threads that ended, and left a lock that had its time, are forgotten. */
    void hold(FencedLock.Key key, FencedLock.Hold hold) {
        holds.put(key, hold);
        if (holds.size() >= sweepAt) {
            holds.keySet().removeIf(each -> !each.thread().isAlive());
            sweepAt = Math.max(SWEEP_MIN, 2 * holds.size());
        }
    }

    /* Data. */

    /**
     * Read a key. That takes no lease.
     *
     * @param key the key
     * @return its value; null: there is none
     */
    public String get(String key) {
        Object value = command("GET", key);
        return Lease.text(value);
    }

    /**
     * Run a command without a token: reads, and what else needs none. It is sent again after a lost
     * connection only where it is a read.
     *
     * @param words strings (sent as UTF-8), numbers and byte arrays
     * @return its reply: {@code Long}, {@code String} (or {@code byte[]} where it is no UTF-8),
     *     {@code Double}, {@code Boolean}, {@code List}, {@code Map} or null
     */
    public Object command(Object... words) {
        return calls.one(isRead(words) ? Calls.Kind.READ : Calls.Kind.ONCE, Request.of(words));
    }

    /**
     * Run a statement of SQL that reads, or one that defines tables.
     *
     * @param statement one statement
     * @param params its parameters: strings, numbers, booleans, byte arrays, nulls
     * @return what it replied
     */
    public Rows sql(String statement, Object... params) {
        return sql(List.of(), statement, params);
    }

    /**
     * Run a statement of SQL under the tokens of leases.
     *
     * @param leases those whose resources' rows it may change; an ID of your own is the first one's
     *     ({@link Lease#withId})
     * @param statement one statement
     * @param params its parameters: strings, numbers, booleans, byte arrays, nulls
     * @return what it replied
     */
    public Rows sql(Collection<Lease> leases, String statement, Object... params) {
        Object[] words = sqlWords(statement, params);
        if (leases.isEmpty()) {
            return Rows.of(calls.one(bareSqlReads(statement) ? Calls.Kind.READ : Calls.Kind.ONCE,
                                     Request.of(words)));
        }
        String id = leases.iterator().next().writeId(); /* only the store knows what it does */
        Request request = Request.of(under(leases, id, words)).withId(id);
        return Rows.of(Lease.judged(leases, () -> calls.one(Calls.Kind.WRITE, request)));
    }

    /**
     * Begin a transaction. Commands are collected in it, and applied whole or not at all by
     * {@link Transaction#commit()}.
     *
     * @param leases those under whose tokens its SQL runs
     * @return an empty transaction
     */
    public Transaction transaction(Lease... leases) {
        return new Transaction(this, List.of(leases));
    }

    /**
     * Begin a transaction.
     *
     * @param leases those under whose tokens its SQL runs
     * @return an empty transaction
     */
    public Transaction transaction(Collection<Lease> leases) {
        return new Transaction(this, List.copyOf(leases));
    }

    Calls calls() {
        return calls;
    }

    static boolean isRead(Object[] words) {
        return words.length > 0 && READS.contains(words[0].toString().toUpperCase(Locale.ROOT));
    }

    /** Without a token the daemon runs these read-only, whatever they say further on. */
    static boolean bareSqlReads(String statement) {
        String start = statement.stripLeading().toUpperCase(Locale.ROOT);
        return start.startsWith("SELECT") || start.startsWith("VALUES")
               || start.startsWith("EXPLAIN") || start.startsWith("WITH");
    }

    static Object[] sqlWords(String statement, Object[] params) {
        List<Object> words = new ArrayList<>(List.of("SQL"));
        StringBuilder types = new StringBuilder();
        List<Object> values = new ArrayList<>();
        for (Object param : params) {
            if (param == null) {
                types.append('n');
                values.add("");
            } else if (param instanceof Boolean truth) {
                types.append('i');
                values.add(truth ? 1 : 0);
            } else if (param instanceof Long || param instanceof Integer || param instanceof Short
                       || param instanceof Byte) {
                types.append('i');
                values.add(param);
            } else if (param instanceof Double || param instanceof Float) {
                types.append('f');
                values.add(param);
            } else if (param instanceof byte[]) {
                types.append('b');
                values.add(param);
            } else {
                types.append('t'); /* what is no text either is refused with the words */
                values.add(param);
            }
        }
        if (types.length() > 0) {
            words.addAll(Arrays.asList("TYPES", types));
        }
        words.add(statement);
        words.addAll(values);
        return words.toArray();
    }

    /** A command under the tokens of leases: with FENCEDALL where there are any. */
    static Object[] under(Collection<Lease> leases, String id, Object[] command) {
        List<Object> words = new ArrayList<>();
        if (!leases.isEmpty()) {
            words.addAll(List.of("FENCEDALL", leases.size()));
            for (Lease lease : leases) {
                words.addAll(List.of(lease.resource(), lease.token()));
            }
        }
        if (id != null) {
            words.addAll(List.of("ID", id));
        }
        words.addAll(Arrays.asList(command));
        return words.toArray();
    }

    private static String checkName(String resource) {
        return checkLength("a resource", resource);
    }

    static String checkId(String id) {
        return checkLength("an ID", id);
    }

    private static String checkLength(String what, String name) {
        int length = name == null ? 0 : Request.bytesOf(name).length;
        if (length < 1 || length > 512) {
            throw new IllegalArgumentException(what + " has 1 to 512 bytes, not " + length);
        }
        return name;
    }

    private static long inRange(String what, long millis, long least) {
        if (millis < least || millis > DAY_MS) {
            throw new IllegalArgumentException(what + " is from " + least + " to " + DAY_MS
                                               + " ms, not " + millis);
        }
        return millis;
    }

    /**
     * End the background thread and the connections. Leases that are held end with their TTL, so
     * close them first.
     */
    @Override
    public void close() {
        calls.close();
        keeper.close();
    }
}
