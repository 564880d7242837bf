// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

class LeaseTest {
    private static Daemon daemon;
    private static Stockade shop;
    private String sku;

    @BeforeAll
    static void start() {
        daemon = new Daemon();
        shop = daemon.connect();
    }

    @AfterAll
    static void stop() {
        shop.close();
        daemon.close();
    }

    @BeforeEach
    void name(TestInfo test) {
        sku = "sku:" + test.getTestMethod().orElseThrow().getName();
    }

    private static Lease lease(String resource) {
        return shop.lease(resource, 30_000, 0);
    }

    @Test
    void aLeaseSellsWhatIsThereAndNoMore() {
        try (Lease lease = lease(sku)) {
            assertTrue(lease.token() > 0 && lease.isValid() && lease.leftMillis() > 25_000);
            assertNull(lease.get());
            lease.set("3");
            assertEquals(1, lease.take(2));
            SoldOut soldOut = assertThrows(SoldOut.class, () -> lease.take(2));
            assertEquals("RANGE", soldOut.code());
            assertThrows(SoldOut.class, () -> lease.take(1, 1));
            assertEquals(6, lease.put(5));
            assertEquals("6", lease.get());
        }
        assertEquals("6", shop.get(sku));
    }

    @Test
    void hashesAndAnyCommand() {
        try (Lease lease = lease(sku)) {
            lease.hset("stock", "3");
            assertEquals(2, lease.htake("stock", 1));
            assertThrows(SoldOut.class, () -> lease.htake("stock", 3));
            assertEquals(4, lease.hput("stock", 2));
            lease.hset("name", "L\u00e4mpchen");
            assertEquals("L\u00e4mpchen", lease.hget("name"));
            assertNull(lease.hget("none"));
            assertEquals(Map.of("stock", "4", "name", "L\u00e4mpchen"), lease.hgetAll());
            assertEquals(List.of("4", "L\u00e4mpchen"),
                         lease.fenced("HMGET", sku, "stock", "name"));
            assertEquals(3L, lease.fenced("hincrby", sku, "stock", -1, "MIN", 0));
            byte[] bytes = {0, (byte) 0xff, '\r', '\n'};
            assertEquals(1L, lease.fenced("HSET", sku, "raw", bytes));
            assertTrue(Arrays.equals(bytes, (byte[]) lease.fenced("HGET", sku, "raw")));
            assertEquals("ERR", assertThrows(StockadeException.class,
                                             () -> lease.fenced("NONSENSE", sku)).code());
            assertThrows(IllegalArgumentException.class, () -> lease.fenced("SET", sku, null));
        }
    }

    @Test
    void anIdOfTheProgramsOwnCountsOnce() {
        shop.sql("CREATE TABLE ids(id TEXT)");
        for (int i = 0; i < 2; i++) { /* the second time as another process does */
            try (Lease lease = lease(sku)) {
                if (i == 0) {
                    lease.set("10");
                }
                assertEquals(7, lease.withId("take").take(3));
                assertEquals(9, lease.withId("put").put(2));
                assertEquals(1, lease.withId("sql").sql("INSERT INTO ids VALUES ('a')").changes());
                assertEquals(List.of(8L), shop.transaction(lease).withId("all").take(lease, 1)
                                              .commit());
                assertThrows(IllegalStateException.class,
                             () -> shop.transaction().take(lease, 1).withId("late"));
                assertThrows(IllegalArgumentException.class,
                             () -> shop.transaction().take(lease.withId("x"), 1));
                assertThrows(IllegalArgumentException.class, () -> lease.withId(""));
            }
        }
        assertEquals("8", shop.get(sku));
        assertEquals(1, shop.sql("SELECT * FROM ids").rows().size());
    }

    @Test
    void aLeaseIsLostWithTheFirstThingThatIsRefusedUnderIt() throws InterruptedException {
        Map<String, Consumer<Lease>> ways = Map.of(
            "write", lease -> lease.set("2"), "read", Lease::get,
            "renewal", lease -> lease.renew(Duration.ofSeconds(60)),
            "SQL", lease -> lease.sql("SELECT 1"),
            "transaction", lease -> shop.transaction().set(lease, "2").commit());
        for (Map.Entry<String, Consumer<Lease>> way : ways.entrySet()) {
            try (Lease lease = shop.lease(sku, 60_000, 0)) {
                CountDownLatch told = new CountDownLatch(1);
                lease.onLost(told::countDown);
                shop.revoke(sku);
                assertThrows(Stale.class, () -> way.getValue().accept(lease), way.getKey());
                assertTrue(lease.isLost() && !lease.isValid(), way.getKey());
                Daemon.await("it is told", told);
            }
        }
    }

    @Test
    void ofSeveralLeasesTheOneIsLostThatWasRefused() throws InterruptedException {
        try (Leases both = shop.leaseAll(List.of(sku, sku + "b"), 60_000, 0)) {
            CountDownLatch told = new CountDownLatch(1);
            both.get(sku + "b").onLost(told::countDown);
            shop.revoke(sku + "b");
            assertThrows(Stale.class, () -> shop.sql(both, "SELECT 1"));
            Daemon.await("it is told", told);
            assertTrue(both.get(sku).isValid());
        }
    }

    @Test
    void fewerThanNoneAreNeitherTakenNorPut() {
        try (Lease lease = lease(sku); Lease hash = lease(sku + "h")) {
            lease.set("5");
            hash.hset("n", "5");
            List<Runnable> acts = List.of(
                () -> lease.take(-1), () -> lease.take(-1, 0), () -> lease.put(-6),
                () -> hash.htake("n", -1), () -> hash.hput("n", -6),
                () -> shop.transaction().take(lease, -1), () -> shop.transaction().put(lease, -6));
            for (Runnable act : acts) {
                assertThrows(IllegalArgumentException.class, act::run);
            }
            assertEquals("5", lease.get());
            assertEquals("5", hash.hget("n"));
            assertEquals(5, lease.take(0));
        }
    }

    @Test
    void whatIsNeitherTextNorNumberIsNotSentAsItsName() {
        assertThrows(IllegalArgumentException.class, () -> shop.sql("SELECT ?", List.of(1)));
        assertThrows(IllegalArgumentException.class, () -> shop.command("GET", List.of(1)));
        IllegalArgumentException none =
            assertThrows(IllegalArgumentException.class, () -> shop.lease(null));
        assertEquals("a resource has 1 to 512 bytes, not 0", none.getMessage());
    }

    @Test
    void halfACharacterIsRefused() {
        String half = "\ud83d";
        try (Lease lease = lease(sku)) {
            for (String text : List.of(half, half + "a", "\ude00", "a" + half)) {
                assertThrows(IllegalArgumentException.class, () -> lease.set(text));
                assertThrows(IllegalArgumentException.class, () -> shop.lease(text));
            }
            lease.set("\ud83d\ude00");
            assertEquals("\ud83d\ude00", lease.get());
        }
    }

    @Test
    void columnsOfOneNameAreAllThere() {
        assertEquals(List.of(Map.of("id", 1L, "id:1", 2L, "id:2", 3L)),
                     shop.sql("SELECT 1 AS id, 2 AS id, 3 AS id").maps());
    }

    @Test
    void aClientHasItsName() {
        try (Stockade named = Stockade.connect(daemon.uri(), Duration.ofSeconds(60), "orders");
             Lease lease = named.lease(sku, 3000, 0)) {
            Daemon.awaitRenewal(lease);
            String clients = (String) shop.command("CLIENT", "LIST");
            assertEquals(3, clients.split("name=orders ").length, clients);
        }
        assertThrows(IllegalArgumentException.class,
                     () -> Stockade.connect(daemon.uri(), Duration.ofSeconds(60), "two words"));
        assertThrows(IllegalArgumentException.class,
                     () -> Stockade.connect(daemon.uri(), Duration.ofSeconds(60), "x".repeat(65)));
        Stockade.connect(daemon.uri(), Duration.ofSeconds(60), "x".repeat(64)).close();
        String process = "[!-~]{1,32}-" + ProcessHandle.current().pid() + "@[!-~]{1,20}";
        assertTrue(Address.CLIENT_NAME.matches(process), Address.CLIENT_NAME);
    }

    @Test
    void aLeaseThatPassedOnWritesNothing() {
        Lease old = lease(sku);
        old.set("10");
        assertEquals(old.token(), shop.revoke(sku));
        try (Lease lease = lease(sku)) {
            assertTrue(lease.token() > old.token());
            assertThrows(Stale.class, () -> old.set("99"));
            assertThrows(Stale.class, old::get);
            assertThrows(Stale.class, old::release);
            old.close();
            assertEquals("10", lease.get());
        }
        assertThrows(Unknown.class,
                     () -> shop.command("FENCED", 1L << 50, "SET", sku, "poison"));
    }

    @Test
    void aTokenIsForItsOwnKeyAlone() {
        try (Lease one = lease(sku); Lease two = lease(sku + ":2")) {
            assertEquals(one.token(), two.token());
            assertEquals("NOTOKEN", assertThrows(StockadeException.class, () -> one.fenced(
                                        "SET", two.resource(), 1)).code());
            assertEquals("NOTOKEN", assertThrows(StockadeException.class, () -> shop.transaction()
                                        .fenced(one, "SET", two.resource(), 1).commit()).code());
            assertNull(two.get());
        }
    }

    @Test
    void aReleasedLeaseIsFreeAtOnceAndMayBeClosedAgain() {
        Lease lease = lease(sku);
        lease.release();
        lease.close();
        lease.release();
        assertFalse(lease.isValid());
        assertFalse(lease.isLost());
        lease(sku).close();
    }

    @Test
    void closingNeverHidesTheProgramsOwnError() {
        IllegalStateException own = assertThrows(IllegalStateException.class, () -> {
            try (Lease lease = lease(sku)) {
                shop.revoke(sku);
                throw new IllegalStateException("mine, under token " + lease.token());
            }
        });
        assertEquals(0, own.getSuppressed().length);
    }

    @Test
    void whoDoesNotWaitIsToldThatItIsHeld() {
        try (Lease lease = lease(sku)) {
            assertThrows(Held.class, () -> shop.lease(lease.resource(), 30_000, 0));
            long begun = System.nanoTime();
            assertThrows(Held.class, () -> shop.lease(sku, Duration.ofSeconds(30),
                                                      Duration.ofMillis(150)));
            Daemon.took("it waits", begun, 150, 2000);
            Daemon.await("it has left the line", () -> Daemon.waiters(shop, sku) == 0);
        }
    }

    @Test
    void manyThreadsWaitInOrderOnOneConnection() {
        int callers = 200;
        List<Integer> served = java.util.Collections.synchronizedList(new java.util.ArrayList<>());
        List<Thread> threads = new java.util.ArrayList<>();
        try (Stockade own = daemon.connect()) {
            Lease first = own.lease(sku, 30_000, 0);
            first.set(Integer.toString(callers));
            for (int i = 0; i < callers; i++) {
                int number = i;
                threads.add(new Thread(() -> {
                    try (Lease lease = own.lease(sku, 30_000, Daemon.millis(30_000))) {
                        lease.take(1);
                        served.add(number);
                    }
                }));
                threads.get(i).start();
                Daemon.await("it stands in line", () -> Daemon.waiters(shop, sku) == number + 1);
            }
            long connections =
                ((String) shop.command("CLIENT", "LIST")).lines().filter(
                    line -> line.contains("name=" + Address.CLIENT_NAME)).count();
            first.close();
            for (Thread thread : threads) {
                Daemon.join(thread);
            }
            assertTrue(connections < 30, connections + " connections");
        }
        assertEquals("0", shop.get(sku));
        assertEquals(java.util.stream.IntStream.range(0, callers).boxed().toList(), served);
    }

    @Test
    void anInterruptedThreadLeavesTheLine() {
        try (Lease held = lease(sku)) {
            AtomicInteger seen = new AtomicInteger();
            Thread thread = new Thread(() -> {
                try (Lease lease = shop.lease(sku, 30_000, 20_000)) {
                    seen.set((int) lease.token());
                } catch (Interrupted now) {
                    seen.set(Thread.currentThread().isInterrupted() ? -1 : -2);
                }
            });
            thread.start();
            Daemon.await("it stands in line", () -> Daemon.waiters(shop, sku) == 1);
            thread.interrupt();
            Daemon.join(thread);
            assertEquals(-1, seen.get());
            Daemon.await("it has left the line", () -> Daemon.waiters(shop, sku) == 0);
            assertTrue(held.isValid());
        }
        lease(sku).close();
    }

    @Test
    void anInterruptedThreadFinishesItsWrites() {
        Thread.currentThread().interrupt();
        try (Lease lease = lease(sku + "2")) {
            throw new AssertionError("not while it is interrupted: " + lease);
        } catch (Interrupted now) {
            assertTrue(Thread.interrupted());
        }
        try (Lease lease = lease(sku)) {
            Thread.currentThread().interrupt();
            lease.set("1");
            assertEquals("1", lease.get());
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void itIsRenewedForAsLongAsItIsHeld() {
        try (Lease lease = shop.lease(sku, 1500, 0)) {
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(1600);
            Daemon.await("its first TTL is over", () -> System.nanoTime() - until > 0);
            assertTrue(lease.isValid());
            assertThrows(Held.class, () -> lease(sku));
            lease.renew(Duration.ofSeconds(60));
            assertTrue(lease.leftMillis() > 50_000);
        }
    }

    @Test
    void aLossIsToldAtOnceAndOnce() {
        CountDownLatch told = new CountDownLatch(1);
        AtomicInteger times = new AtomicInteger();
        Lease lease = lease(sku);
        lease.onLost(() -> {
            throw new IllegalStateException("a listener that fails is no concern of the others");
        });
        lease.onLost(() -> {
            times.incrementAndGet();
            told.countDown();
        });
        Daemon.awaitRenewal(lease);
        long begun = System.nanoTime();
        shop.revoke(sku);
        Daemon.await("it is told", told);
        Daemon.took("it is told", begun, 0, 1000);
        assertTrue(lease.isLost());
        assertFalse(lease.isValid());
        CountDownLatch late = new CountDownLatch(1);
        lease.onLost(late::countDown);
        Daemon.await("it is told, late as it is", late);
        lease.close();
        assertEquals(1, times.get());
    }

    @Test
    void severalLeasesAreTakenTogetherOrNotAtAll() {
        String a = sku + ":a";
        String b = sku + ":b";
        Leases both = shop.leaseAll(List.of(a, b), 30_000, 0);
        assertEquals(a, both.get(0).resource());
        assertSame(both.get(1), both.get(b));
        assertThrows(Held.class, () -> shop.leaseAll(List.of(b, sku), 30_000, 0));
        Thread waits = new Thread(() -> {
            try (Leases leases = shop.leaseAll(List.of(b, a), 30_000, 10_000)) {
                leases.get(a).set("1");
            }
        });
        waits.start();
        Daemon.await("it waits", () -> Daemon.waiters(shop, a) == 1);
        both.close();
        Daemon.join(waits);
        assertEquals("1", shop.get(a));
        lease(sku).close();
    }

    @Test
    void aTransactionIsAppliedWholeOrNotAtAll() {
        try (Leases both = shop.leaseAll(List.of(sku + ":a", sku + ":b"), 30_000, 0)) {
            Lease a = both.get(0);
            Lease b = both.get(1);
            assertEquals(List.of("OK", "OK"),
                         shop.transaction().set(a, "2").set(b, "5").commit());
            assertEquals(List.of(1L, 7L, "7"), shop.transaction().take(a, 1).put(b, 2)
                                                   .read("GET", b.resource()).commit());
            Transaction tooMuch = shop.transaction().put(b, 1).take(a, 2);
            assertThrows(SoldOut.class, tooMuch::commit);
            assertThrows(IllegalStateException.class, tooMuch::commit);
            shop.revoke(a.resource());
            assertThrows(Stale.class, shop.transaction().put(b, 1).take(a, 1)::commit);
            assertEquals("7", b.get());
            assertEquals("1", shop.get(a.resource()));
        }
    }

    @Test
    void sqlReadsAndWritesUnderTokens() {
        shop.sql("CREATE TABLE inventory(sku TEXT PRIMARY KEY, n INTEGER, f REAL, b BLOB)");
        shop.command("GUARD", "CREATE", "inventory", "sku", "inv:");
        try (Lease lease = lease("inv:1"); Lease other = lease("inv:2")) {
            Rows made = lease.sql("INSERT INTO inventory VALUES(?, ?, ?, ?)", "1", 10, 0.5, null);
            assertEquals(1, made.changes());
            assertThrows(Guarded.class,
                         () -> lease.sql("INSERT INTO inventory VALUES('3', 1, 1, 1)"));
            Rows rows = shop.sql("SELECT sku, n, f, b, ? AS t FROM inventory", true);
            assertEquals(Map.of("sku", "1", "n", 10L, "f", 0.5, "t", 1L),
                         withoutNulls(rows.maps().get(0)));
            List<Object> replies =
                shop.transaction(lease, other)
                    .sql("INSERT INTO inventory VALUES(?, ?, NULL, NULL)", "2", 7L)
                    .put(lease, 1)
                    .sql("SELECT count(*) FROM inventory")
                    .commit();
            assertEquals(1, ((Rows) replies.get(0)).changes());
            assertEquals(List.of(List.of(2L)), ((Rows) replies.get(2)).rows());
        }
    }

    private static Map<String, Object> withoutNulls(Map<String, Object> map) {
        map.values().removeIf(java.util.Objects::isNull);
        return map;
    }

    private static Connection sqlite() throws SQLException {
        Properties options = new Properties();
        options.setProperty("enable_load_extension", "true");
        options.setProperty("busy_timeout", "5000");
        Connection connection =
            DriverManager.getConnection("jdbc:sqlite:" + daemon.store(), options);
        try (Statement load = connection.createStatement()) {
            load.execute("SELECT load_extension('" + Daemon.BUILD.resolve("stockade_guard") + "')");
        }
        connection.setAutoCommit(false);
        return connection;
    }

    @Test
    void theTokenIsPresentedToTheProgramsOwnTransaction() throws SQLException {
        shop.sql("CREATE TABLE own(sku TEXT PRIMARY KEY, n INTEGER)");
        shop.command("GUARD", "CREATE", "own", "sku", "own:");
        try (Connection db = sqlite(); Statement statement = db.createStatement()) {
            String sale = "INSERT INTO own VALUES('1', 1) ON CONFLICT DO UPDATE SET n = n + 1";
            Lease lease = lease("own:1");
            assertThrows(SQLException.class, () -> statement.execute(sale));
            db.rollback();
            lease.present(db);
            statement.execute(sale);
            db.commit();
            lease.close();
            Stale stale = assertThrows(Stale.class, () -> lease.present(db));
            assertTrue(stale.getCause() instanceof SQLException);
            db.rollback();
            db.setAutoCommit(true);
            assertThrows(SQLException.class, () -> lease.present(db));
        }
        assertEquals(List.of(List.of(1L)), shop.sql("SELECT n FROM own").rows());
    }

    @Test
    void whatMakesNoSenseIsRefusedBeforeItIsSent() {
        assertThrows(IllegalArgumentException.class, () -> shop.lease("", 30_000, 0));
        assertThrows(IllegalArgumentException.class, () -> shop.lease("x".repeat(513), 30_000, 0));
        assertThrows(IllegalArgumentException.class, () -> shop.lease(sku, 9, 0));
        assertThrows(IllegalArgumentException.class, () -> shop.lease(sku, 30_000, -1));
        Stockade closed = daemon.connect();
        closed.close();
        assertThrows(IllegalStateException.class, () -> closed.get(sku));
        assertThrows(Unreachable.class, () -> Stockade.connect("stockade://127.0.0.1:1"));
    }
}
