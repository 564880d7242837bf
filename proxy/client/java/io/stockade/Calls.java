// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Calls: a request, sent on a connection that this thread has for itself meanwhile, and sent again
 * where the connection broke or the daemon was busy, until it is answered or its time is over.
 *
 * <p>No call waits for a lease (waiting is the {@link Keeper}'s), so each is short, and a bounded
 * number of connections serves any number of threads. A thread that is interrupted finishes its
 * call, and stays interrupted.
 */
final class Calls {
    /** May it be sent again, and does anything change by it? */
    enum Kind {
        /** Changes nothing. */
        READ,
        /** Changes something, and has an ID or is harmless for another reason. */
        WRITE,
        /** Changes something, and must not be sent twice: not on a connection that may be dead. */
        ONCE
    }

    /** The replies, and when the attempt that brought them began. */
    record Answer(List<Object> replies, long askedAt) {
        /** The first reply. */
        Object reply() {
            return replies.get(0);
        }
    }

    private static final int CONNECTIONS_MAX = 64;
    private static final long PAUSE_MIN = TimeUnit.MILLISECONDS.toNanos(4);
    private static final long PAUSE_MAX = TimeUnit.MILLISECONDS.toNanos(256);

    private final Address address;
    private final long timeout;
    private final Keeper keeper;
    private final Semaphore slots = new Semaphore(CONNECTIONS_MAX, true);
    private final ReentrantLock lock = new ReentrantLock();

    /* Under the lock. */
    private final ArrayDeque<Wire> idle = new ArrayDeque<>(); /* used last in front */
    private boolean closed;

    Calls(Address address, long timeoutNanos, Keeper keeper) {
        this.address = address;
        this.timeout = timeoutNanos;
        this.keeper = keeper;
    }

    /** How long a call may take, in nanoseconds. */
    long timeout() {
        return timeout;
    }

    /** Connect once: who cannot be reached now is told at once. */
    void connect() {
        try {
            give(open(System.nanoTime() + timeout));
        } catch (IOException failed) {
            throw new Unreachable(address + ": " + why(failed));
        }
    }

    /** Run one command; an error reply is thrown. */
    Object one(Kind kind, Request request) {
        return check(run(kind, request).reply());
    }

    /** Throw an error reply, return any other. */
    static Object check(Object reply) {
        if (reply instanceof Decoder.ErrorReply error) {
            throw StockadeException.of(error.text());
        }
        return reply;
    }

    /** Run a request and return its replies, error replies among them. */
    Answer run(Kind kind, Request request) {
        return new Call(kind, () -> request, false, System.nanoTime() + timeout).run();
    }

    /**
     * The same on a connection of its own, which may take so many nanoseconds more. Each attempt
     * asks for its request.
     */
    Answer runAlone(Kind kind, Supplier<Request> request, long extra) {
        return new Call(kind, request, true, System.nanoTime() + timeout + extra).run();
    }

    void close() {
        lock.lock();
        try {
            closed = true;
            dropIdle();
        } finally {
            lock.unlock();
        }
    }

    private void dropIdle() {
        for (Wire wire : idle) {
            wire.close();
        }
        idle.clear();
    }

    private boolean isClosed() {
        lock.lock();
        try {
            return closed;
        } finally {
            lock.unlock();
        }
    }

    private Wire takeIdle() {
        lock.lock();
        try {
            return idle.pollFirst();
        } finally {
            lock.unlock();
        }
    }

    private void give(Wire wire) {
        lock.lock();
        try {
            if (!closed) {
                idle.addFirst(wire);
                return;
            }
        } finally {
            lock.unlock();
        }
        wire.close();
    }

    /** Try each of the host's addresses. */
    private Wire open(long deadline) throws IOException {
        IOException last = null;
        for (InetAddress at : resolve(deadline)) {
            InetSocketAddress where = new InetSocketAddress(at, address.port());
            try {
                Wire wire = Wire.open(where, address.hello(), deadline);
                keeper.reachedAt(where);
                return wire;
            } catch (IOException failed) {
                last = failed;
            }
        }
        throw last;
    }

    /** Looking a name up knows no time limit: it is left behind where it takes too long. */
    private InetAddress[] resolve(long deadline) throws IOException {
        String host = address.host();
        if (host.indexOf(':') >= 0 || host.matches("[0-9.]+")) {
            return InetAddress.getAllByName(host);
        }
        FutureTask<InetAddress[]> task = new FutureTask<>(() -> InetAddress.getAllByName(host));
        Keeper.daemonThread(task).start();
        boolean stopped = false;
        try {
            for (;;) {
                try {
                    return task.get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                } catch (InterruptedException now) {
                    stopped = true;
                } catch (TimeoutException late) {
                    throw new SocketTimeoutException();
                } catch (ExecutionException failed) {
                    throw failed.getCause() instanceof IOException why
                        ? why : new IOException(failed.getCause());
                }
            }
        } finally {
            if (stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static String why(IOException failed) {
        if (failed instanceof SocketTimeoutException) {
            return "no answer in time";
        }
        return failed.getMessage() == null ? failed.toString() : failed.getMessage();
    }

    private final class Call {
        private final Kind kind;
        private final Supplier<Request> requests;
        private final boolean alone;
        private final long deadline;
        private boolean interrupted;
        private Request request; /* of the attempt under way */
        private boolean sent;
        private boolean unheard; /* an answer was lost: it may have been applied */
        private long pause = PAUSE_MIN;

        Call(Kind kind, Supplier<Request> requests, boolean alone, long deadline) {
            this.kind = kind;
            this.requests = requests;
            this.request = requests.get();
            this.alone = alone;
            this.deadline = deadline;
        }

        Answer run() {
            interrupted = Thread.interrupted();
            try {
                if (alone) {
                    return tryUntilAnswered();
                }
                takeSlot();
                try {
                    return tryUntilAnswered();
                } finally {
                    slots.release();
                }
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        private Answer tryUntilAnswered() {
            for (;;) {
                boolean aged = false;
                Wire wire = null;
                try {
                    checkOpen();
                    wire = alone ? null : takeIdle();
                    if (kind == Kind.ONCE && wire != null) { /* it may be dead: a new one */
                        wire.close();
                        wire = null;
                    }
                    if (wire == null) {
                        wire = open(deadline);
                    }
                    aged = wire.used();
                    long askedAt = System.nanoTime();
                    List<Object> replies = exchange(wire);
                    if (kind == Kind.ONCE || !isBusy(replies)) {
                        return new Answer(replies, askedAt);
                    }
                    if (!isUndone(replies.get(replies.size() - 1))) {
                        throw unanswered(new IOException("the daemon is busy"));
                    }
                    if (!rest()) {
                        if (unheard) {
                            throw unanswered(new IOException("the daemon is busy"));
                        }
                        return new Answer(replies, askedAt);
                    }
                } catch (Busy login) {
                    if (!rest()) {
                        throw unheard ? unanswered(new IOException(login.getMessage())) : login;
                    }
                } catch (IOException failed) {
                    if (Thread.interrupted()) { /* a virtual thread's socket closes by that */
                        interrupted = true;
                        aged = true;
                    }
                    if (wire != null) {
                        wire.close();
                    }
                    mayTryAgain(failed);
                    if (aged) {
                        forgetIdle();
                    } else if (!rest()) {
                        throw unanswered(failed);
                    }
                } catch (Error noThread) { /* for who watches the time: nothing was sent */
                    if (wire != null) {
                        wire.close();
                    }
                    throw noThread;
                }
            }
        }

        private List<Object> exchange(Wire wire) throws IOException {
            Keeper.Timed guard = keeper.closeAt(wire, deadline, alone);
            if (sent) {
                request = requests.get();
            }
            sent = true;
            try {
                List<Object> replies = wire.exchange(request);
                keeper.cancel(guard);
                if (alone) {
                    wire.close();
                } else {
                    give(wire);
                }
                return replies;
            } catch (IOException failed) {
                unheard = true;
                keeper.cancel(guard);
                throw failed;
            }
        }

        /** What was sent before may have been applied: that is not to be hidden. */
        private void checkOpen() {
            if (isClosed()) {
                throw sent && kind != Kind.READ
                    ? unanswered(new IOException("this Stockade was closed"))
                    : new IllegalStateException("this Stockade is closed");
            }
        }

        private void mayTryAgain(IOException failed) {
            if (sent && kind == Kind.ONCE || System.nanoTime() - deadline >= 0) {
                throw unanswered(failed);
            }
        }

        private StockadeException unanswered(IOException failed) {
            boolean late = System.nanoTime() - deadline >= 0;
            String why = address + ": " + (late ? "no answer in time" : why(failed));
            return sent && kind != Kind.READ
                       ? new Unsure(why + "; it may have been applied", request.id())
                       : new Unreachable(why);
        }

        /** Of several replies the last one is the transaction's outcome. */
        private static boolean isUndone(Object outcome) {
            return outcome instanceof Decoder.ErrorReply error
                && (error.is("BUSY") || error.is("EXECABORT"));
        }

        private static boolean isBusy(List<Object> replies) {
            for (Object reply : replies) {
                if (reply instanceof Decoder.ErrorReply error && error.is("BUSY")) {
                    return true;
                }
            }
            return false;
        }

        /** The others that lay idle have ended, too, as the one of this call has. */
        private void forgetIdle() {
            lock.lock();
            try {
                dropIdle();
            } finally {
                lock.unlock();
            }
        }

        private void takeSlot() {
            for (;;) {
                try {
                    if (slots.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                        return;
                    }
                    throw new Unreachable(address + ": all connections were in use");
                } catch (InterruptedException again) {
                    interrupted = true;
                }
            }
        }

        /** Pause, longer each time, half of it left to chance. False: there is no time for it. */
        private boolean rest() {
            long until = System.nanoTime() + pause / 2
                         + ThreadLocalRandom.current().nextLong(pause / 2);
            pause = Math.min(pause * 2, PAUSE_MAX);
            if (until - deadline >= 0) {
                return false;
            }
            for (long left; (left = until - System.nanoTime()) > 0;) {
                LockSupport.parkNanos(left);
                interrupted |= Thread.interrupted();
            }
            return true;
        }
    }
}
