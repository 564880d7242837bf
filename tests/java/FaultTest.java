// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

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

    /** A server that has the next answer for each request; "": it closes the connection. */
    private static final class Script implements AutoCloseable {
        private static final String SILENCE = "(nothing)";
        private final ServerSocket server;
        private final Queue<String> answers;
        private final List<String> asked = new CopyOnWriteArrayList<>();

        Script(String... answers) throws IOException {
            this.answers = new ConcurrentLinkedQueue<>(List.of(answers));
            this.server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
            new Thread(() -> {
                try {
                    for (;;) {
                        Socket socket = server.accept();
                        new Thread(() -> serve(socket)).start();
                    }
                } catch (IOException closed) {
                    // the test is over
                }
            }).start();
        }

        private void serve(Socket socket) {
            byte[] request = new byte[4096];
            try (socket) {
                for (int got; (got = socket.getInputStream().read(request)) > 0;) {
                    asked.add(new String(request, 0, got, StandardCharsets.UTF_8));
                    String answer = answers.isEmpty() ? "-BUSY stopping" : answers.remove();
                    if (answer.isEmpty()) {
                        Thread.sleep(50);
                        return;
                    }
                    if (answer.equals(SILENCE)) {
                        continue;
                    }
                    socket.getOutputStream().write((answer + "\r\n")
                                                       .getBytes(StandardCharsets.UTF_8));
                }
            } catch (IOException | InterruptedException over) {
                // the test looks at what was asked
            }
        }

        Stockade connect() {
            return Stockade.connect("stockade://127.0.0.1:" + server.getLocalPort(),
                                    Duration.ofMillis(1000));
        }

        /** What follows this word in that request, which is WORD $len VALUE. */
        String word(int request, String word) {
            String[] lines = asked.get(request).split("\r\n");
            return lines[List.of(lines).indexOf(word) + 2];
        }

        @Override
        public void close() throws IOException {
            server.close();
        }
    }

    @Test
    void aBasketWhoseGrantIsOverIsAskedForAgainForTheTimeThatIsLeft() throws Exception {
        try (Script script = new Script("+OK", "+OK", "", "+OK", "-STALE over", "+OK",
                                        "*2\r\n:3\r\n:4");
             Stockade shop = script.connect()) {
            Leases basket = shop.leaseAll(List.of("r", "s"), 60_000, 10_000);
            assertEquals(List.of(3L, 4L), basket.stream().map(Lease::token).toList());
            int first = 2; /* a HELLO each is before */
            assertTrue(Long.parseLong(script.word(first + 2, "WAIT"))
                           <= Long.parseLong(script.word(first, "WAIT")) - 40);
            assertEquals(script.word(first, "ID"), script.word(first + 2, "ID"));
            assertNotEquals(script.word(first, "ID"), script.word(first + 4, "ID"));
        }
    }

    @Test
    void aDaemonThatIsBusyAtTheLoginIsAskedAgain() throws Exception {
        try (Script script = new Script("+OK", "", "-BUSY try again", "+OK", "$1\r\n7");
             Stockade shop = script.connect()) {
            assertEquals("7", shop.get("k"));
        }
    }

    @Test
    void aDaemonThatIsBusyAfterALostReplyLeavesTheWriteUnsure() throws Exception {
        try (Script script = new Script("+OK", "*2\r\n:1\r\n:60000", "", "+OK");
             Stockade shop = script.connect()) {
            FencedLock lock = shop.lock("r");
            lock.lock(60, TimeUnit.SECONDS);
            assertThrows(Unsure.class, () -> lock.lease().set("1"));
        }
    }

    private static Throwable failure(FutureTask<?> task) {
        return assertThrows(ExecutionException.class, () -> task.get(20, TimeUnit.SECONDS))
            .getCause();
    }

    /** It has its limit all the same, and what was sent may have been applied. */
    @Test
    void aCallUnderWayWhenTheClientIsClosedEndsAndSaysWhatIsSo() throws Exception {
        try (Script script = new Script("+OK", Script.SILENCE)) {
            Stockade shop = script.connect();
            FutureTask<String> reads = begin(() -> shop.get("k"));
            Daemon.await("it is asked", () -> script.asked.size() == 2);
            shop.close();
            assertEquals(Unreachable.class, failure(reads).getClass());
        }
        try (Script script = new Script("+OK", "*2\r\n:1\r\n:60000", "")) {
            Stockade shop = script.connect();
            Lease lease = shop.lease("r", 60_000, 0);
            FutureTask<Object> writes = begin(() -> lease.fenced("SET", "r", "1"));
            Daemon.await("it is asked", () -> script.asked.size() >= 3);
            shop.close();
            assertEquals(Unsure.class, failure(writes).getClass());
            assertThrows(IllegalStateException.class, () -> shop.get("k"));
        }
        try (Script script = new Script("+OK", "+OK", Script.SILENCE)) {
            Stockade shop = script.connect();
            FutureTask<Leases> waits =
                begin(() -> shop.leaseAll(List.of("r", "s"), 60_000, 600_000));
            Daemon.await("it is asked", () -> script.asked.size() >= 3);
            shop.close();
            assertEquals(Unreachable.class, failure(waits).getClass());
        }
    }

    /** As it may be where the daemon lets unfenced writes through. */
    @Test
    void aTransactionThatWritesWithoutAnIdIsNotSentTwice() throws Exception {
        try (Script script = new Script("+OK", "+OK", ""); Stockade shop = script.connect()) {
            assertThrows(Unsure.class, () -> shop.transaction().read("INCR", "r").commit());
            assertEquals(3, script.asked.size());
        }
    }

    /** No thread can be started so many times. */
    private static java.util.concurrent.ThreadFactory noThreads(AtomicInteger times) {
        return work -> times.getAndDecrement() <= 0 ? Keeper.daemonThread(work) : new Thread(work) {
            @Override
            public void start() {
                throw new OutOfMemoryError("unable to create native thread");
            }
        };
    }

    @Test
    void aKeeperWhoseThreadCannotBeStartedIsTriedAgain() {
        AtomicInteger times = new AtomicInteger(1);
        try (Stockade shop = new Stockade(Address.parse(daemon.uri()), Duration.ofSeconds(60),
                                          noThreads(times))) {
            assertThrows(OutOfMemoryError.class, () -> shop.lease("r", 3000, 0));
            try (Lease lease = shop.lease("r", 3000, 0)) {
                assertEquals(1, lease.token(), "nothing was granted before");
                Daemon.awaitRenewal(lease);
            }
        }
    }

    @Test
    void aListenerWhoseThreadCannotBeStartedIsCalledLater() {
        AtomicInteger times = new AtomicInteger();
        try (Stockade shop = new Stockade(Address.parse(daemon.uri()), Duration.ofSeconds(60),
                                          noThreads(times));
             Lease lease = shop.lease("r", 60_000, 0); Lease other = shop.lease("s", 3000, 0)) {
            CountDownLatch lost = new CountDownLatch(1);
            lease.onLost(() -> {
                throw new AssertionError("the program's own");
            });
            lease.onLost(lost::countDown);
            times.set(2);
            shop.revoke("r");
            Daemon.await("it is told", lost);
            Daemon.awaitRenewal(other);
        }
    }

    @Test
    void locksOfThreadsThatEndedAreForgotten() throws Exception {
        try (Stockade shop = daemon.connect()) {
            for (int i = 0; i < 200; i++) {
                FencedLock lock = shop.lock("r" + i);
                Daemon.result(begin(() -> {
                    lock.lock(10, TimeUnit.SECONDS);
                    return null;
                }));
            }
            assertTrue(shop.holds.size() < 140, "holds " + shop.holds.size());
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
            long begun = System.nanoTime();
            assertEquals(5, Daemon.result(writes));
            Daemon.await("it waits again", () -> Daemon.waiters(shop, "r") == 1);
            busy.close();
            assertEquals(1, Daemon.result(waits));
            Daemon.took("its turn comes", begun, 0, 2000);
            held.renew(Duration.ofSeconds(30));
            assertEquals(1, lost.getCount());
            daemon.stop();
            daemon.start();
            assertEquals(held.token(), shop.revoke("held"), "over a new connection");
            held.close();
        }
    }

    @Test
    void aSilentDaemonIsToldBeforeTheTtlIsOver() throws Exception {
        try (Stockade shop = Stockade.connect(daemon.uri(), Duration.ofMillis(1000))) {
            Lease lease = shop.lease("r", 3000, 0);
            CountDownLatch lost = new CountDownLatch(1);
            lease.onLost(lost::countDown);
            FutureTask<Object> waits = begin(() -> {
                shop.lock("r").lock();
                return null;
            });
            Daemon.await("it waits", () -> Daemon.waiters(shop, "r") == 1);
            daemon.signal("STOP");
            long begun = System.nanoTime();
            Unsure unsure = assertThrows(Unsure.class, () -> lease.set("1"));
            FutureTask<Object> reads = begin(() -> shop.get("r"));
            assertTrue(unsure.id().length() > 10);
            Daemon.await("it is told", lost);
            Daemon.took("it is told", begun, 0, 3000);
            assertFalse(lease.isValid());
            for (FutureTask<?> task : List.of(reads, waits)) {
                assertTrue(assertThrows(ExecutionException.class, () -> Daemon.result(task))
                               .getCause() instanceof Unreachable);
            }
            daemon.signal("CONT");
            try (Stockade patient = daemon.connect()) {
                lease.close();
                patient.lease("r", 30_000, 20_000).close();
                List<?> receipt = (List<?>) patient.command("RECEIPT", "r", lease.token(),
                                                            unsure.id());
                assertEquals(receipt.get(0).equals(1L) ? "1" : null, patient.get("r"));
            }
        }
    }

    /** Its answer comes when nobody is there, and the lease would stand for its TTL. */
    @ParameterizedTest
    @ValueSource(longs = {0, 200})
    void aLeaseThatWasGrantedTooLateIsGivenBack(long waitMillis) {
        try (Stockade shop = Stockade.connect(daemon.uri(), Duration.ofMillis(2000));
             Stockade patient = daemon.connect()) {
            assertNull(shop.get("r"));
            daemon.signal("STOP");
            assertThrows(Unreachable.class, () -> shop.lease("r", 60_000, waitMillis));
            daemon.signal("CONT");
            try (Lease next = patient.lease("r", 30_000, 20_000)) {
                assertTrue(next.isValid());
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
                 Lease lease = shop.lease("r", 3000, 0)) {
                Daemon.awaitRenewal(lease);
            }
            assertEquals("WRONGPASS", assertThrows(StockadeException.class,
                                                   () -> Stockade.connect("stockade://:no@" + at))
                                          .code());
            assertEquals("NOAUTH", assertThrows(StockadeException.class,
                                                () -> Stockade.connect("stockade://" + at)).code());
        }
    }
}
