// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock on a resource among all programs that use this daemon, with a fencing token. The thread
 * that holds it may enter it again, through whichever FencedLock of the same {@link Stockade};
 * inner frames have the same token. It is renewed by itself for as long as it is held and its
 * thread lives.
 *
 * <pre>{@code
 * FencedLock lock = shop.lock("sku:1042");
 * lock.lock();
 * try {
 *     lock.lease().take(1); // a write is checked: Stale where the lock has passed on
 * } finally {
 *     lock.unlock();
 * }
 * }</pre>
 *
 * <p>Waiting threads are served in the order of their arrival. {@link #lock()} has no limit of its
 * own, but ends with {@link Unreachable} where the daemon does not answer for as long as a call may
 * take, and with {@link LeaseDown} where it can grant no leases.
 */
public final class FencedLock implements Lock {
    /** Who holds what. */
    record Key(String resource, Thread thread) {
    }

    /** A lease, and how many times its thread has entered. Its own thread alone changes it. */
    static final class Hold {
        private final Lease lease;
        private int count = 1;

        Hold(Lease lease) {
            this.lease = lease;
        }
    }

    private static final long NO_LEASE_TIME = -1;

    private final Stockade shop;
    private final String resource;
    private final long ttlMillis;
    private final List<Runnable> listeners = new CopyOnWriteArrayList<>();

    FencedLock(Stockade shop, String resource, long ttlMillis) {
        this.shop = shop;
        this.resource = resource;
        this.ttlMillis = ttlMillis;
    }

    /**
     * The resource.
     *
     * @return its name, which is also its key
     */
    public String getName() {
        return resource;
    }

    /* Entering. */

    /** Wait for the lock, and take it. An interrupt does not end that. */
    @Override
    public void lock() {
        lock(NO_LEASE_TIME, TimeUnit.MILLISECONDS);
    }

    /**
     * Wait for the lock, and take it for so long: it is not renewed.
     *
     * @param leaseTime how long; -1: it is renewed for as long as it is held
     * @param unit of that
     */
    public void lock(long leaseTime, TimeUnit unit) {
        try {
            enterWhenever(leaseTime, unit, false);
        } catch (InterruptedException cannotBe) {
            throw new AssertionError(cannotBe);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        lockInterruptibly(NO_LEASE_TIME, TimeUnit.MILLISECONDS);
    }

    /**
     * Wait for the lock unless interrupted, and take it for so long: it is not renewed.
     *
     * @param leaseTime how long; -1: it is renewed for as long as it is held
     * @param unit of that
     * @throws InterruptedException the thread was interrupted, and has left the line
     */
    public void lockInterruptibly(long leaseTime, TimeUnit unit) throws InterruptedException {
        enterWhenever(leaseTime, unit, true);
    }

    private void enterWhenever(long leaseTime, TimeUnit unit, boolean interruptible)
        throws InterruptedException {
        if (!enter(Stockade.FOREVER_MS, leaseTime, unit, interruptible)) {
            throw new AssertionError("a wait without end has ended");
        }
    }

    @Override
    public boolean tryLock() {
        try {
            return enter(0, NO_LEASE_TIME, TimeUnit.MILLISECONDS, false);
        } catch (InterruptedException cannotBe) {
            throw new AssertionError(cannotBe);
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(time, NO_LEASE_TIME, unit);
    }

    /**
     * Wait for the lock for at most so long, and take it for so long: it is not renewed.
     *
     * @param waitTime how long to wait
     * @param leaseTime how long to have it; -1: it is renewed for as long as it is held
     * @param unit of both
     * @return false where somebody else has it
     * @throws InterruptedException the thread was interrupted, and has left the line
     */
    public boolean tryLock(long waitTime, long leaseTime, TimeUnit unit)
        throws InterruptedException {
        return enter(Math.min(unit.toMillis(Math.max(waitTime, 0)), Stockade.FOREVER_MS), leaseTime,
                     unit, true);
    }

    private boolean enter(long waitMillis, long leaseTime, TimeUnit unit, boolean interruptible)
        throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException();
        }
        Key key = new Key(resource, Thread.currentThread());
        Hold hold = shop.holds.get(key);
        if (hold != null) {
            if (hold.lease.isLost()) {
                throw new Stale("STALE the lock on " + resource + " was lost by the outer frame");
            }
            hold.count++;
            return true;
        }
        boolean kept = leaseTime == NO_LEASE_TIME;
        long ttl = kept ? ttlMillis : unit.toMillis(leaseTime);
        Grant grant;
        try {
            grant = shop.acquire(resource, ttl, waitMillis, interruptible, kept, key.thread());
        } catch (Held busy) {
            return false;
        }
        Hold taken = new Hold(new Lease(shop, resource, grant));
        shop.hold(key, taken);
        grant.onLost(() -> {
            if (!key.thread().isAlive()) {
                shop.holds.remove(key, taken);
            }
            listeners.forEach(Keeper::call);
        });
        return true;
    }

    /* Leaving. */

    /**
     * Leave the lock; the last time gives it back. A lock that was lost is no error here, so that
     * the program's own is not hidden: {@link #isLost()} tells, the listener, and each write.
     *
     * @throws IllegalMonitorStateException this thread does not hold it
     */
    @Override
    public void unlock() {
        Hold hold = mine();
        if (--hold.count == 0) {
            shop.holds.remove(new Key(resource, Thread.currentThread()));
            hold.lease.close();
        }
    }

    /**
     * End whoever holds the lock. The holder's next write is {@link Stale}.
     *
     * @return was it held?
     */
    public boolean forceUnlock() {
        boolean held = isLocked();
        shop.revoke(resource);
        return held;
    }

    /* Asking. */

    /**
     * The fencing token of this thread's hold: the same one in inner frames.
     *
     * @return a number that is larger than that of each holder before
     * @throws IllegalMonitorStateException this thread does not hold it
     */
    public long token() {
        return mine().lease.token();
    }

    /**
     * The lease of this thread's hold, for the writes under it. It ends with the lock.
     *
     * @return the lease
     * @throws IllegalMonitorStateException this thread does not hold it
     */
    public Lease lease() {
        return mine().lease;
    }

    /**
     * Has this thread lost the lock that it holds?
     *
     * @return true from then until it has left it
     */
    public boolean isLost() {
        return mine().lease.isLost();
    }

    /**
     * Have this called whenever a lock that was taken through this object is lost: at once where
     * the daemon tells of it, and with a tenth of the TTL to go where the daemon cannot be reached.
     *
     * @param listener is called on a thread of its own
     */
    public void onLost(Runnable listener) {
        listeners.add(listener);
    }

    /**
     * Does this thread hold it?
     *
     * @return false also where it has lost it
     */
    public boolean isHeldByCurrentThread() {
        Hold hold = shop.holds.get(new Key(resource, Thread.currentThread()));
        return hold != null && !hold.lease.isLost();
    }

    /**
     * How many times has this thread entered it?
     *
     * @return 0: it does not hold it
     */
    public int getHoldCount() {
        Hold hold = shop.holds.get(new Key(resource, Thread.currentThread()));
        return hold == null ? 0 : hold.count;
    }

    /**
     * Does anybody hold it? The daemon is asked.
     *
     * @return true: somebody did, a moment ago
     */
    public boolean isLocked() {
        Object lease = shop.command("LEASE", resource);
        return lease instanceof java.util.Map<?, ?> map && "held".equals(map.get("state"));
    }

    /**
     * Conditions are for the threads of one program.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock among programs has no conditions");
    }

    private Hold mine() {
        Hold hold = shop.holds.get(new Key(resource, Thread.currentThread()));
        if (hold == null) {
            throw new IllegalMonitorStateException("this thread does not hold the lock on "
                                                   + resource);
        }
        return hold;
    }
}
