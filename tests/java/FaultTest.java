// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Connections break, daemons stop, end, and start again. */
class FaultTest {
    private Daemon daemon;

    @BeforeEach
    void start() {
        daemon = new Daemon();
    }

    @AfterEach
    void stop() {
        daemon.close();
    }

    private static <T> FutureTask<T> begin(java.util.concurrent.Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        new Thread(task).start();
        return task;
    }

    private static <T> T end(FutureTask<T> task) throws Exception {
        return task.get(Daemon.millis(20_000), TimeUnit.MILLISECONDS);
    }

    @Test
    void whatIsSentAgainAfterALostReplyIsAppliedOnce() {
        try (Relay relay = new Relay(daemon); Stockade shop = Stockade.connect(relay.uri())) {
            relay.lose("ACQUIRE", 2);
            Lease lease = shop.lease("r", 30_000, 0);
            assertEquals(1, lease.token());
            lease.set("10");
            relay.lose("DECRBY", 2);
            assertEquals(7, lease.take(3));
            relay.lose("EXEC", 2);
            assertEquals(List.of(6L), shop.transaction().take(lease, 1).commit());
            relay.lose("RELEASE", 1);
            lease.release();
            assertEquals(0, relay.left());
            assertEquals("6", shop.get("r"));
            try (Lease next = shop.lease("r", 30_000, 0)) {
                assertEquals(2, next.token());
            }
        }
    }

    @Test
    void whoWaitsWhileTheConnectionBreaksIsServed() throws Exception {
        try (Relay relay = new Relay(daemon); Stockade shop = Stockade.connect(relay.uri());
             Stockade direct = daemon.connect()) {
            Lease held = direct.lease("r", 30_000, 0);
            FutureTask<Long> waits = begin(() -> {
                try (Lease lease = shop.lease("r", 30_000, 20_000)) {
                    return lease.put(1);
                }
            });
            Daemon.await("it waits", () -> Daemon.waiters(direct, "r") == 1);
            relay.cut();
            relay.lose("ACQUIRE", 1);
            held.close();
            assertEquals(1, end(waits));
            try (Lease next = direct.lease("r", 30_000, 0)) {
                assertEquals(3, next.token(), "one grant, and no lease that nobody has");
            }
        }
    }

    @Test
    void aDaemonThatStartsAgainIsNoticedByNobody() throws Exception {
        try (Stockade shop = daemon.connect()) {
            CountDownLatch lost = new CountDownLatch(1);
            Lease held = shop.lease("held", 30_000, 0);
            held.onLost(lost::countDown);
            Lease busy = shop.lease("r", 30_000, 0);
            FutureTask<Long> waits = begin(() -> {
                try (Lease lease = shop.lease("r", 30_000, 20_000)) {
                    return lease.put(1);
                }
            });
            Daemon.await("it waits", () -> Daemon.waiters(shop, "r") == 1);
            daemon.stop();
            FutureTask<Long> writes = begin(() -> held.put(5));
            daemon.start();
            assertEquals(5, end(writes));
            busy.close();
            assertEquals(1, end(waits));
            held.renew(Duration.ofSeconds(30));
            assertEquals(1, lost.getCount());
            held.close();
        }
    }

    @Test
    void aSilentDaemonIsToldBeforeTheTtlIsOver() throws Exception {
        try (Stockade shop = Stockade.connect(daemon.uri(), Duration.ofMillis(300))) {
            Lease lease = shop.lease("r", 1000, 0);
            CountDownLatch lost = new CountDownLatch(1);
            lease.onLost(lost::countDown);
            FutureTask<Object> waits = begin(() -> {
                shop.lock("r").lock();
                return null;
            });
            Daemon.await("it waits", () -> Daemon.waiters(shop, "r") == 1);
            daemon.signal("STOP");
            long begun = System.nanoTime();
            assertEquals("UNREACHABLE",
                         assertThrows(StockadeException.class, () -> shop.get("r")).code());
            Unsure unsure = assertThrows(Unsure.class, () -> lease.set("1"));
            assertTrue(unsure.id().length() > 10);
            assertTrue(lost.await(Daemon.millis(3000), TimeUnit.MILLISECONDS));
            assertFalse(lease.isValid());
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
            assertTrue(millis < Daemon.millis(1500), "told after " + millis + " ms");
            assertTrue(assertThrows(ExecutionException.class, () -> end(waits)).getCause()
                           instanceof Unreachable);
            lease.close();
            daemon.signal("CONT");
            try (Stockade patient = daemon.connect()) {
                patient.lease("r", 1000, Daemon.millis(10_000)).close();
                List<?> receipt = (List<?>) patient.command("RECEIPT", "r", lease.token(),
                                                            unsure.id());
                assertEquals(receipt.get(0).equals(1L) ? "1" : null, patient.get("r"));
            }
        }
    }

    @Test
    void aPasswordIsSentAndAWrongOneIsTold() throws Exception {
        java.nio.file.Path file = daemon.folder.resolve("password");
        java.nio.file.Files.writeString(file, "geheim\n");
        try (Daemon closed = new Daemon("--password-file", file.toString())) {
            String at = "127.0.0.1:" + closed.port();
            try (Stockade shop = Stockade.connect("stockade://:geheim@" + at);
                 Lease lease = shop.lease("r", 300, 0)) {
                Daemon.await("it was renewed", () -> lease.leftMillis() < 200);
                Daemon.await("it was renewed", () -> lease.leftMillis() > 200);
            }
            assertEquals("WRONGPASS", assertThrows(StockadeException.class,
                                                   () -> Stockade.connect("stockade://:no@" + at))
                                          .code());
            assertEquals("NOAUTH", assertThrows(StockadeException.class,
                                                () -> Stockade.connect("stockade://" + at)).code());
        }
    }
}
