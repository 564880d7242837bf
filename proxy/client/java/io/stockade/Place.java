// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A place in the line for a resource. The keeper asks for it with {@code ACQUIRE ... QUEUE}, again
 * and again: when it is its turn, and often enough for the daemon to know that somebody is there.
 * Any number of threads stand in any number of lines so, on one connection that nothing holds up.
 *
 * <p>A place ends when it is granted the lease, when its time to wait is over, when the daemon has
 * not answered for as long as a call may take, or when nobody waits for it any more. Where the
 * answer to its last word was lost it may have been granted the lease, which nobody would have
 * then: so it goes on by itself until it is answered, and gives back what it gets, or until that
 * lease has ended.
 */
final class Place extends Keeper.Timed implements Keeper.Pending {
    /** What was granted: `left` nanoseconds from a moment after `askedAt`. */
    record Granted(long token, long left, long askedAt) {
    }

    private static final long SILENCE_MAX = TimeUnit.SECONDS.toNanos(10);
    private static final long MOMENT = TimeUnit.MILLISECONDS.toNanos(20);

    private final Keeper keeper;
    private final String resource;
    private final long ttl;
    private final long deadline;
    private final long patience;
    private final CompletableFuture<Granted> end = new CompletableFuture<>();

    /* Under the keeper's lock. */
    private String id;
    private boolean asking;
    private boolean inDoubt; /* an answer was lost */
    private boolean turn; /* was told while it asked */
    private boolean abandoned; /* nobody waits for it */
    private long askedAt;
    private long heardAt; /* when it stood in the line for certain */
    private StockadeException trouble;

    /** Granted at once, or a reply that says nothing of the sort: null. */
    static Granted granted(Object reply, long askedAt) {
        if (reply instanceof List<?> list && list.size() == 2 && list.get(0) instanceof Long token
            && list.get(1) instanceof Long left) {
            return new Granted(token, TimeUnit.MILLISECONDS.toNanos(left), askedAt);
        }
        return null;
    }

    /** Go on standing where `id` stands already. The deadline is one of System.nanoTime(). */
    Place(Keeper keeper, String resource, long ttl, String id, long deadline, long patience) {
        this.keeper = keeper;
        this.resource = resource;
        this.ttl = ttl;
        this.id = id;
        this.deadline = deadline;
        this.patience = patience;
    }

    String id() {
        return id;
    }

    /**
     * Wait for the end: null where the time was over. A thread that is interrupted leaves the line
     * where it may (InterruptedException), else it waits on, and stays interrupted.
     */
    Granted await(boolean interruptible) throws InterruptedException {
        boolean interrupted = false;
        keeper.lock.lock();
        try {
            heardAt = System.nanoTime();
            keeper.add(this);
            keeper.schedule(this, heardAt);
        } finally {
            keeper.lock.unlock();
        }
        try {
            for (;;) {
                try {
                    return end.get();
                } catch (InterruptedException now) {
                    if (interruptible && abandon()) {
                        throw now;
                    }
                    interrupted = true;
                } catch (ExecutionException failed) {
                    throw (RuntimeException) failed.getCause();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Nobody waits for it, and an answer was lost: see that no lease is left behind. */
    void cleanUp() {
        keeper.lock.lock();
        try {
            askedAt = System.nanoTime();
            heardAt = askedAt;
            inDoubt = true;
            giveUp();
            keeper.add(this);
            keeper.schedule(this, askedAt);
        } finally {
            keeper.lock.unlock();
        }
    }

    /** False: it has ended already. */
    private boolean abandon() {
        keeper.lock.lock();
        try {
            if (end.isDone()) {
                return false;
            }
            giveUp();
            keeper.schedule(this, System.nanoTime());
            return true;
        } finally {
            keeper.lock.unlock();
        }
    }

    /* All that follows is under the keeper's lock. */

    private void giveUp() {
        abandoned = true;
        end.complete(null);
    }

    void fail(RuntimeException why) {
        keeper.remove(this);
        end.completeExceptionally(why);
    }

    /** Its next word is at that time, or when the time to wait is over. */
    private void next(long at) {
        keeper.schedule(this, abandoned || at - deadline < 0 ? at : deadline);
    }

    @Override
    void fire(long now) {
        boolean over = abandoned || now - deadline >= 0;
        if (asking && now - askedAt >= patience) {
            keeper.hangUp("no answer from those in line");
        } else if (asking) {
            giveUp();
            next(askedAt + patience);
        } else if (over && !inDoubt) {
            leave(now);
        } else if (now - heardAt >= patience && !mayHaveLeftALease(now)) {
            fail(trouble != null ? trouble : new Unreachable("no answer in time"));
        } else if (!keeper.canSend(now)) {
            next(keeper.retryAt());
        } else {
            if (over) {
                giveUp();
            }
            asking = true;
            askedAt = now;
            next(now + patience);
            keeper.send(this, now, "ACQUIRE", resource, TimeUnit.NANOSECONDS.toMillis(ttl),
                        "QUEUE", "ID", id);
        }
    }

    /** Then the caller is told, and it goes on without. */
    private boolean mayHaveLeftALease(long now) {
        if (!inDoubt || now - (heardAt + patience + ttl) >= 0) {
            return false;
        }
        abandoned = true;
        end.completeExceptionally(trouble != null ? trouble : new Unreachable("no answer in time"));
        return true;
    }

    void onTurn(long now) {
        if (asking) {
            turn = true;
        } else {
            keeper.schedule(this, now);
        }
    }

    /** The connection that would have told of its turn broke. */
    void onDeaf(long now) {
        if (!asking) {
            next(now);
        }
    }

    @Override
    public void on(Object reply, long now) {
        asking = false;
        inDoubt = false;
        Granted granted = granted(reply, askedAt);
        if (granted != null) {
            take(granted, now);
        } else if (reply instanceof Decoder.ErrorReply error) {
            onError(error, now);
        } else {
            heardAt = now;
            next(turn || abandoned ? now : now + Math.min(ttl, SILENCE_MAX) / 3);
            turn = false;
        }
    }

    private void onError(Decoder.ErrorReply error, long now) {
        if (error.is("BUSY")) {
            trouble = StockadeException.of(error.text());
            next(now + MOMENT + ThreadLocalRandom.current().nextLong(MOMENT));
        } else if (error.is("STALE")) { /* what was granted to an answer that was lost is over */
            keeper.remove(this);
            id = Request.newId();
            keeper.add(this);
            next(now);
        } else {
            fail(StockadeException.of(error.text()));
        }
    }

    @Override
    public void broken(long now, String why) {
        asking = false;
        inDoubt = true;
        trouble = new Unreachable("the connection broke: " + why);
        next(now);
    }

    private void take(Granted granted, long now) {
        keeper.remove(this);
        if (!end.complete(granted)) {
            keeper.send(IGNORED, now, "RELEASE", resource, granted.token());
        }
    }

    private void leave(long now) {
        keeper.remove(this);
        if (keeper.canSend(now)) {
            keeper.send(IGNORED, now, "DEQUEUE", resource, id);
        }
        end.complete(null);
    }

    static final Keeper.Pending IGNORED = new Keeper.Pending() {
        @Override
        public void on(Object reply, long now) {
            // where it was refused the place, or the lease, ends by itself
        }

        @Override
        public void broken(long now, String why) {
            // the same
        }
    };
}
