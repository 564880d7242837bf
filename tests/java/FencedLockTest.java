// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

class FencedLockTest {
    private static Daemon daemon;
    private static Stockade shop;
    private String name;

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
        name = test.getTestMethod().orElseThrow().getName();
    }

    /** Another thread that does something. */
    private static final class Other<T> {
        private final FutureTask<T> task;
        private final Thread thread;

        Other(Callable<T> work) {
            task = new FutureTask<>(work);
            thread = new Thread(task);
            thread.start();
        }

        T result() throws ExecutionException {
            return Daemon.result(task);
        }
    }

    private static <T> T elsewhere(Callable<T> work) throws Exception {
        return new Other<>(work).result();
    }

    @Test
    void aThreadEntersAgainUnderTheSameToken() throws Exception {
        FencedLock lock = shop.lock(name);
        lock.lock();
        long token = lock.token();
        FencedLock again = shop.lock(name);
        assertTrue(again.tryLock());
        assertEquals(token, again.token());
        assertEquals(2, lock.getHoldCount());
        lock.lease().set("1");
        again.unlock();
        assertTrue(lock.isHeldByCurrentThread());
        assertFalse(elsewhere(() -> shop.lock(name).tryLock()));
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread() || lock.isLocked());
        long next = elsewhere(() -> {
            assertTrue(lock.tryLock());
            try {
                return lock.token();
            } finally {
                lock.unlock();
            }
        });
        assertTrue(next > token);
    }

    @Test
    void onlyItsHolderMayLeaveIt() throws Exception {
        FencedLock lock = shop.lock(name);
        lock.lock();
        for (Callable<?> call : new Callable<?>[] {() -> {
            lock.unlock();
            return null;
        }, lock::token, lock::lease}) {
            ExecutionException refused =
                assertThrows(ExecutionException.class, () -> elsewhere(call));
            assertTrue(refused.getCause() instanceof IllegalMonitorStateException);
        }
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void waitingEndsByTheLockByTimeOrByAnInterrupt() throws Exception {
        Lock lock = shop.lock(name);
        lock.lock();
        Other<Boolean> tries = new Other<>(() -> lock.tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(tries.result());
        Other<Object> interruptible = new Other<>(() -> {
            lock.lockInterruptibly();
            return null;
        });
        Daemon.await("it waits", () -> Daemon.waiters(shop, name) == 1);
        interruptible.thread.interrupt();
        assertTrue(assertThrows(ExecutionException.class, interruptible::result).getCause()
                       instanceof InterruptedException);
        Other<Boolean> stubborn = new Other<>(() -> {
            lock.lock();
            boolean interrupted = Thread.interrupted();
            lock.unlock();
            return interrupted;
        });
        Daemon.await("it waits", () -> Daemon.waiters(shop, name) == 1);
        stubborn.thread.interrupt();
        lock.unlock();
        assertTrue(stubborn.result(), "lock() goes on, and the thread stays interrupted");
    }

    @Test
    void theWatchdogEndsWithItsThread() throws Exception {
        CountDownLatch told = new CountDownLatch(1);
        FencedLock lock = shop.lock(name, Duration.ofMillis(300));
        lock.onLost(told::countDown);
        assertNull(elsewhere(() -> {
            lock.lock();
            return null;
        }));
        assertTrue(lock.tryLock(Daemon.millis(5000), TimeUnit.MILLISECONDS));
        lock.unlock();
        Daemon.await("it is told", told);
    }

    @Test
    void aLostLockIsToldAndIsNotEnteredAgain() throws Exception {
        CountDownLatch told = new CountDownLatch(1);
        FencedLock lock = shop.lock(name);
        lock.onLost(() -> {
            throw new IllegalStateException("a listener of the program's fails");
        });
        lock.onLost(told::countDown);
        lock.lock();
        long token = lock.token();
        assertTrue(elsewhere(lock::forceUnlock));
        Daemon.await("it is told", told);
        assertTrue(lock.isLost());
        assertFalse(lock.isHeldByCurrentThread());
        assertEquals(token, lock.token(), "not its successor's");
        assertThrows(Stale.class, lock::lock);
        assertThrows(Stale.class, () -> lock.lease().set("2"));
        lock.unlock();
        lock.lock();
        lock.unlock();
    }

    @Test
    void aLockForATimeIsNotRenewed() throws Exception {
        FencedLock lock = shop.lock(name);
        lock.lock(200, TimeUnit.MILLISECONDS);
        assertTrue(elsewhere(() -> {
            boolean got = shop.lock(name).tryLock(Daemon.millis(5000), -1, TimeUnit.MILLISECONDS);
            shop.lock(name).unlock();
            return got;
        }));
        assertTrue(lock.isLost());
        lock.unlock();
    }

    @Test
    void manyThreadsCountWithoutLosingOne() throws Exception {
        int count = 20;
        int rounds = 5;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add(new Thread(() -> {
                FencedLock lock = shop.lock(name);
                for (int round = 0; round < rounds; round++) {
                    lock.lock();
                    try {
                        String value = lock.lease().get();
                        lock.lease().set(value == null ? "1" : "" + (Integer.parseInt(value) + 1));
                    } finally {
                        lock.unlock();
                    }
                }
            }));
            threads.get(i).start();
        }
        threads.forEach(Daemon::join);
        assertEquals(Integer.toString(count * rounds), shop.get(name));
    }
}
