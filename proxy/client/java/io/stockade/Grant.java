// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A lease that was granted: what it is good for, and until when.
 *
 * <pre>
 *   LIVE ──released──▶ RELEASED
 *    └──the daemon says so, or it cannot be renewed and a tenth of its TTL is left──▶ LOST
 * </pre>
 *
 * <p>It is renewed every third of its TTL, and counted from before a renewal was sent, less a
 * margin for clocks that differ. A renewal also asks to be told of the loss; so that the keeper
 * hears of one from early on, the first renewal comes sooner, but not so soon that leases which are
 * held for a moment cost one.
 */
final class Grant extends Keeper.Timed {
    /** What has become of it. */
    enum State { LIVE, LOST, RELEASED }

    private static final long HEARS_AFTER = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long PATIENCE_MIN = TimeUnit.MILLISECONDS.toNanos(20);
    private static final long AGAIN_MAX = TimeUnit.MILLISECONDS.toNanos(256);
    private static final long MARGIN_MIN = TimeUnit.MILLISECONDS.toNanos(2);

    private final Keeper keeper;
    private final Keeper.Name name;
    private final Thread owner; /* that it ends with; null: none */
    private volatile State state = State.LIVE;
    private volatile long until;

    /* Under the keeper's lock. */
    private final List<Runnable> listeners = new ArrayList<>();
    private boolean kept;
    private long ttl;
    private long renewAt;
    private Renewal renewal; /* under way, or null */
    private boolean again; /* news came meanwhile: its reply may be of before */
    private String trouble = "it was not renewed in time";

    Grant(Keeper keeper, String resource, long token, Thread owner) {
        this.keeper = keeper;
        this.name = new Keeper.Name(resource, token);
        this.owner = owner;
    }

    Keeper.Name name() {
        return name;
    }

    /** Also where its time has run out, and nobody has noticed yet. */
    boolean isLost() {
        return state == State.LOST || state == State.LIVE && nanosLeft() == 0;
    }

    long nanosLeft() {
        return state == State.LIVE ? Math.max(0, until - System.nanoTime()) : 0;
    }

    /** From now on it has so much time, which was asked for at `askedAt`. */
    void begin(long askedAt, long ttl, long left, boolean kept) {
        keeper.lock.lock();
        try {
            extend(askedAt, ttl, left);
            this.kept = kept;
            if (kept) {
                keeper.add(this);
                renewAt = earlier(renewAt, askedAt + HEARS_AFTER);
                schedule();
            }
        } finally {
            keeper.lock.unlock();
        }
    }

    /** It was renewed by the program, perhaps with another TTL. */
    void renewed(long askedAt, long ttl, long left) {
        keeper.lock.lock();
        try {
            if (state == State.LIVE) {
                long due = renewAt; /* not put off: it may be the first one, which asks for news */
                extend(askedAt, ttl, left);
                if (kept) {
                    renewAt = earlier(renewAt, due);
                    schedule();
                }
            }
        } finally {
            keeper.lock.unlock();
        }
    }

    /** Something was refused as stale under it alone: the daemon has said what a renewal would. */
    void onStale(String why) {
        keeper.lock.lock();
        try {
            if (state == State.LIVE) {
                lose(why);
            }
        } finally {
            keeper.lock.unlock();
        }
    }

    /** Something was refused as stale, perhaps for it: the daemon is asked. */
    void suspect() {
        keeper.lock.lock();
        try {
            if (state == State.LIVE && kept) {
                onLostPush(System.nanoTime());
            }
        } finally {
            keeper.lock.unlock();
        }
    }

    /** Its end: it is not renewed any more. Returns what it was until then. */
    State release() {
        keeper.lock.lock();
        try {
            State before = state;
            state = State.RELEASED;
            keeper.remove(this);
            return before;
        } finally {
            keeper.lock.unlock();
        }
    }

    /** Have this called when it is lost; at once where it is lost already. */
    void onLost(Runnable listener) {
        keeper.lock.lock();
        try {
            if (state == State.LOST) {
                keeper.tell(List.of(listener));
            } else {
                listeners.add(listener);
            }
        } finally {
            keeper.lock.unlock();
        }
    }

    /* All that follows is under the keeper's lock. */

    private static long earlier(long a, long b) {
        return a - b < 0 ? a : b;
    }

    private void extend(long askedAt, long ttl, long left) {
        long good = Math.min(ttl, left);
        this.ttl = ttl;
        until = askedAt + good - good / 100 - MARGIN_MIN;
        renewAt = askedAt + good / 3;
    }

    /** When it counts as lost. */
    private long end() {
        return until - ttl / 10;
    }

    private void schedule() {
        long next = renewal == null ? renewAt
                                    : renewal.askedAt + Math.max(ttl / 4, PATIENCE_MIN);
        keeper.schedule(this, earlier(next, end()));
    }

    @Override
    void fire(long now) {
        if (now - end() >= 0) {
            lose(trouble);
        } else if (owner != null && !owner.isAlive()) {
            lose("its thread has ended");
        } else if (renewal != null) {
            keeper.hangUp("no answer to a renewal");
        } else if (!keeper.canSend(now)) {
            renewAt = keeper.retryAt();
            schedule();
        } else {
            renewal = new Renewal(now);
            again = false;
            schedule();
            keeper.send(renewal, now, "RENEW", name.resource(), name.token(),
                        TimeUnit.NANOSECONDS.toMillis(ttl), "NOTIFY");
        }
    }

    /** The daemon says that it is lost: the answer to a renewal is what counts. */
    void onLostPush(long now) {
        again = renewal != null;
        renewAt(now);
    }

    /** The connection that would have told of its loss broke. */
    void onDeaf(long now) {
        renewAt(now + Math.min(ttl / 20, AGAIN_MAX));
    }

    private void renewAt(long at) {
        if (renewal == null) {
            renewAt = earlier(renewAt, at);
            schedule();
        }
    }

    private void lose(String why) {
        state = State.LOST;
        keeper.remove(this);
        Keeper.LOG.log(Level.WARNING, "the lease on {0} (token {1}) is lost: {2}",
                       name.resource(), Long.toString(name.token()), why);
        keeper.tell(listeners);
    }

    private void tryAgain(long now, String why) {
        trouble = why;
        renewAt = now + Math.min(ttl / 20, AGAIN_MAX);
        schedule();
    }

    private final class Renewal implements Keeper.Pending {
        private final long askedAt;

        Renewal(long askedAt) {
            this.askedAt = askedAt;
        }

        private boolean counts() {
            if (renewal != this) {
                return false;
            }
            renewal = null;
            return state == State.LIVE;
        }

        @Override
        public void on(Object reply, long now) {
            if (!counts()) {
                return;
            }
            if (reply instanceof Long left) {
                extend(askedAt, ttl, TimeUnit.MILLISECONDS.toNanos(left));
                if (again) {
                    renewAt = now;
                }
                schedule();
            } else if (reply instanceof Decoder.ErrorReply error) {
                if (error.is("STALE") || error.is("UNKNOWN")) {
                    lose(error.text());
                } else {
                    tryAgain(now, error.text());
                }
            } else {
                tryAgain(now, "a reply that makes no sense");
            }
        }

        @Override
        public void broken(long now, String why) {
            if (counts()) {
                tryAgain(now, why);
            }
        }
    }
}
