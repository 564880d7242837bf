// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.io.EOFException;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The client's one background thread, with a connection of its own. It renews leases, stands in
 * line for those who wait for one, and hears what the daemon tells unasked: that a lease is lost,
 * that it is somebody's turn.
 *
 * <p>Whatever has a next moment (a {@link Grant}'s renewal, a {@link Place}'s next word) is a
 * {@link Timed} in one ordered set. The thread does what is due, sends it in one go, and waits for
 * replies no longer than until the next moment: a daemon that is silent delays nobody's bad news.
 * Where the connection breaks, those with a request under way are told and try again.
 *
 * <p>Everything but waiting happens under one lock; input and output do not block. What the program
 * wants to be called when a lease is lost runs on threads of its own, so that it may take its time.
 */
final class Keeper implements Runnable {
    static final System.Logger LOG = System.getLogger("io.stockade");

    private static final long PAUSE_MIN = TimeUnit.MILLISECONDS.toNanos(4);
    private static final long PAUSE_MAX = TimeUnit.MILLISECONDS.toNanos(256);
    private static final int LISTENER_THREADS = 4;

    /** What is to be done at a time, under the lock, on the keeper's thread. */
    abstract static class Timed {
        private long at;
        private long number;
        private boolean listed;

        /** It is time; it is scheduled no more. */
        abstract void fire(long now);
    }

    /** Closes a connection at the end of its call's time. */
    private static final class Guard extends Timed {
        private final Wire wire;
        private final boolean waits;

        Guard(Wire wire, boolean waits) {
            this.wire = wire;
            this.waits = waits;
        }

        @Override
        void fire(long now) {
            wire.close();
        }
    }

    /** A request under way on this connection. */
    interface Pending {
        /** Its reply. */
        void on(Object reply, long now);

        /** The connection broke first. */
        void broken(long now, String why);
    }

    /** A lease, as the daemon names it. */
    record Name(String resource, long token) {
    }

    final ReentrantLock lock = new ReentrantLock();
    private final Address address;
    private final ThreadFactory threads;
    private final Selector selector;
    private final ThreadPoolExecutor listeners;
    private volatile InetSocketAddress where; /* the address that answered last */

    /* Under the lock. */
    private final TreeSet<Timed> schedule = new TreeSet<>(Keeper::compare);
    private final Map<Name, Grant> grants = new HashMap<>();
    private final Map<String, Place> places = new HashMap<>();
    private final ArrayDeque<Pending> pending = new ArrayDeque<>();
    private final Request out = new Request();
    private Thread thread;
    private long number;
    private long wakeAt;
    private boolean asleep;
    private boolean closed; /* it only watches the calls under way */
    private boolean ended;
    private SocketChannel channel;
    private Decoder decoder;
    private ByteBuffer writing; /* what the socket has no room for; null: nothing */
    private long retryAt = System.nanoTime();
    private long pause = PAUSE_MIN;

    Keeper(Address address, ThreadFactory threads) throws IOException {
        this.address = address;
        this.threads = threads;
        this.selector = Selector.open();
        this.listeners = new ThreadPoolExecutor(LISTENER_THREADS, LISTENER_THREADS, 1,
                                                TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
                                                threads,
                                                new ThreadPoolExecutor.DiscardPolicy());
        this.listeners.allowCoreThreadTimeOut(true);
    }

    static Thread daemonThread(Runnable work) {
        Thread thread = new Thread(work, "stockade");
        thread.setDaemon(true);
        return thread;
    }

    private static int compare(Timed a, Timed b) {
        int order = Long.compare(a.at - b.at, 0);
        return order != 0 ? order : Long.compare(a.number, b.number);
    }

    /** A daemon answered there. */
    void reachedAt(InetSocketAddress where) {
        this.where = where;
    }

    /* Scheduling. */

    /**
     * Have it fire at that time, and not at the one before. The lock is held. Where no thread can
     * be started (an OutOfMemoryError), nothing has happened, and the next one tries again. Once
     * this is closed only calls under way are watched.
     */
    void schedule(Timed timed, long at) {
        if (closed && !(timed instanceof Guard)) {
            return;
        }
        if (thread == null && !closed) {
            Thread first = threads.newThread(this);
            first.start();
            thread = first;
        }
        unschedule(timed);
        timed.at = at;
        timed.number = ++number;
        timed.listed = true;
        schedule.add(timed);
        if (asleep && at - wakeAt < 0) {
            asleep = false;
            selector.wakeup();
        }
    }

    /** Have it fire no more. The lock is held. */
    void unschedule(Timed timed) {
        if (timed.listed) {
            schedule.remove(timed);
            timed.listed = false;
        }
    }

    /**
     * Close a connection at that time, unless it is cancelled; one whose call waits for leases also
     * when this is closed. Where this has ended already: at once.
     */
    Timed closeAt(Wire wire, long at, boolean waits) {
        Guard guard = new Guard(wire, waits);
        lock.lock();
        try {
            if (ended || closed && waits) {
                wire.close();
            } else {
                schedule(guard, at);
            }
        } finally {
            lock.unlock();
        }
        return guard;
    }

    void cancel(Timed timed) {
        lock.lock();
        try {
            unschedule(timed);
            if (closed && !ended) {
                selector.wakeup(); /* it may have been the last one */
            }
        } finally {
            lock.unlock();
        }
    }

    /* Leases that are kept, places that are stood in. The lock is held. */

    void add(Grant grant) {
        grants.put(grant.name(), grant);
    }

    void remove(Grant grant) {
        unschedule(grant);
        grants.remove(grant.name(), grant);
    }

    void add(Place place) {
        if (closed) {
            throw new IllegalStateException("this Stockade is closed");
        }
        places.put(place.id(), place);
    }

    void remove(Place place) {
        unschedule(place);
        places.remove(place.id(), place);
    }

    /** Call the program's listeners, each in its own time. The lock is held. */
    void tell(List<Runnable> told) {
        for (Runnable listener : told) {
            tell(listener);
        }
    }

    private void tell(Runnable listener) {
        try {
            listeners.execute(() -> call(listener));
        } catch (OutOfMemoryError noThread) {
            LOG.log(Level.WARNING, "no thread for a listener, which is called later", noThread);
            schedule(new Timed() {
                @Override
                void fire(long now) {
                    tell(listener);
                }
            }, System.nanoTime() + PAUSE_MAX);
        }
    }

    /** What one of them throws keeps none from being called. */
    static void call(Runnable listener) {
        try {
            listener.run();
        } catch (RuntimeException | Error failed) {
            LOG.log(Level.WARNING, "a listener for the loss of a lease failed", failed);
        }
    }

    /* The connection. The lock is held. */

    /** May something be sent now? Otherwise not before {@link #retryAt}. */
    boolean canSend(long now) {
        return channel != null || now - retryAt >= 0;
    }

    long retryAt() {
        return retryAt;
    }

    /** Send a command, as soon as there is a connection. */
    void send(Pending what, long now, Object... words) {
        if (channel == null) {
            connect();
        }
        if (channel == null) {
            what.broken(now, "it cannot be reached");
            return;
        }
        pending.add(what);
        out.add(words);
    }

    private void connect() {
        try {
            channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            decoder = new Decoder(this::readChannel);
            boolean connected = channel.connect(where);
            channel.register(selector, connected ? SelectionKey.OP_READ : SelectionKey.OP_CONNECT);
            Request hello = address.hello();
            writing = ByteBuffer.wrap(hello.bytes(), 0, hello.length());
            pending.add(new Greeting());
        } catch (IOException | RuntimeException failed) {
            drop();
        }
    }

    /** The reply to HELLO. */
    private final class Greeting implements Pending {
        @Override
        public void on(Object reply, long now) {
            if (reply instanceof Decoder.ErrorReply error) {
                hangUp(error.text());
            } else {
                pause = PAUSE_MIN;
            }
        }

        @Override
        public void broken(long now, String why) {
            // the next one to send connects again
        }
    }

    private void drop() {
        if (channel != null) {
            try {
                channel.close();
            } catch (IOException alreadyGone) {
                // is of no more use either way
            }
        }
        channel = null;
        decoder = null;
        writing = null;
        out.clear();
        retryAt = System.nanoTime() + pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2);
        pause = Math.min(pause * 2, PAUSE_MAX);
    }

    /** The connection is of no more use. No news come over it either: all have to ask again. */
    void hangUp(String why) {
        drop();
        long now = System.nanoTime();
        for (int count = pending.size(); count > 0; count--) {
            pending.remove().broken(now, why);
        }
        grants.values().forEach(grant -> grant.onDeaf(now));
        places.values().forEach(place -> place.onDeaf(now));
    }

    private int readChannel(byte[] into, int at, int room) throws IOException {
        return channel.read(ByteBuffer.wrap(into, at, room));
    }

    private void flush() throws IOException {
        if (channel == null || !channel.isConnected()) {
            return;
        }
        for (;;) {
            if (writing == null && out.length() > 0) {
                writing = ByteBuffer.allocate(out.length());
                writing.put(out.bytes(), 0, out.length()).flip();
                out.clear();
            }
            if (writing == null) {
                break;
            }
            channel.write(writing);
            if (writing.hasRemaining()) {
                break;
            }
            writing = null;
        }
        channel.keyFor(selector).interestOps(
            SelectionKey.OP_READ | (writing != null ? SelectionKey.OP_WRITE : 0));
    }

    private void onReady() throws IOException {
        SelectionKey key = channel == null ? null : channel.keyFor(selector);
        if (key == null || !key.isValid()) {
            return;
        }
        if (key.isConnectable()) {
            channel.finishConnect();
            key.interestOps(SelectionKey.OP_READ);
        }
        if (!key.isReadable()) {
            return;
        }
        for (Object value; channel != null && (value = decoder.next()) != Decoder.NOTHING;) {
            long now = System.nanoTime();
            if (value instanceof Decoder.Push push) {
                onPush(push.words(), now);
            } else if (pending.isEmpty()) {
                throw new IOException("a reply to nothing");
            } else {
                pending.remove().on(value, now);
            }
        }
    }

    /** What is told unasked says only when to ask: the reply to that is what counts. */
    private void onPush(List<Object> words, long now) {
        if (words.size() == 4 && "stockade:lost".equals(words.get(0))
            && words.get(1) instanceof String resource && words.get(2) instanceof Long token) {
            Grant grant = grants.get(new Name(resource, token));
            if (grant != null) {
                grant.onLostPush(now);
            }
        } else if (words.size() == 3 && "stockade:turn".equals(words.get(0))) {
            Place place = places.get(words.get(2));
            if (place != null) {
                place.onTurn(now);
            }
        }
    }

    /* The thread. */

    @Override
    public void run() {
        try {
            while (step()) {
                // until it is closed
            }
        } finally {
            close();
        }
    }

    /** Do what is due, wait, and hear what has come. False: it is closed. */
    private boolean step() {
        long millis;
        lock.lock();
        try {
            runDue();
            if (closed) {
                drop();
                ended = schedule.isEmpty();
            }
            if (ended) {
                selector.close();
                return false;
            }
            flush();
            millis = sleepMillis();
            asleep = true;
        } catch (IOException | RuntimeException | Error failed) {
            hangUp(reason(failed));
            return true;
        } finally {
            lock.unlock();
        }
        try {
            if (millis > 0) {
                selector.select(millis);
            } else if (millis == 0) {
                selector.selectNow();
            } else {
                selector.select();
            }
        } catch (IOException failed) {
            LOG.log(Level.WARNING, "the keeper cannot wait", failed);
        }
        lock.lock();
        try {
            asleep = false;
            onReady();
            selector.selectedKeys().clear();
        } catch (IOException | RuntimeException | Error failed) {
            hangUp(reason(failed));
        } finally {
            lock.unlock();
        }
        return true;
    }

    /** Whatever it was, it costs the connection, and renewals go on. */
    private static String reason(Throwable failed) {
        if (!(failed instanceof IOException)) {
            LOG.log(Level.ERROR, "the keeper failed, and goes on", failed);
        }
        return failed instanceof EOFException || failed.getMessage() != null ? failed.getMessage()
                                                                             : failed.toString();
    }

    private void runDue() {
        long now = System.nanoTime();
        while (!schedule.isEmpty() && schedule.first().at - now <= 0) {
            Timed first = schedule.pollFirst();
            first.listed = false;
            first.fire(now);
        }
    }

    /** Until the next moment; -1: there is none. */
    private long sleepMillis() {
        if (schedule.isEmpty()) {
            wakeAt = System.nanoTime() + TimeUnit.DAYS.toNanos(365);
            return -1;
        }
        wakeAt = schedule.first().at;
        long left = wakeAt - System.nanoTime();
        return left <= 0 ? 0 : TimeUnit.NANOSECONDS.toMillis(left + 999_999);
    }

    void close() {
        lock.lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
            for (Place place : List.copyOf(places.values())) {
                place.fail(new IllegalStateException("this Stockade is closed"));
            }
            for (Timed timed : List.copyOf(schedule)) {
                if (timed instanceof Guard guard && !guard.waits) {
                    continue;
                }
                unschedule(timed);
                if (timed instanceof Guard guard) {
                    guard.wire.close();
                }
            }
            if (thread == null) {
                ended = true;
                selector.close();
            } else {
                selector.wakeup();
            }
        } catch (IOException alreadyGone) {
            // is of no more use either way
        } finally {
            lock.unlock();
        }
        listeners.shutdown();
    }
}
