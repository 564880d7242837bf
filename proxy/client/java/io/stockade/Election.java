// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A candidate's wait for the lease by which it leads. It ends when it leads, when its own limit is
 * over, or when its thread is interrupted; nothing that may pass ends it: what a try ends with is
 * looked at here.
 */
final class Election {
    private static final long LOOK_MAX = TimeUnit.DAYS.toMillis(1);
    private static final long PAUSE_MIN = 20;
    private static final long PAUSE_MAX = 1000;

    private final Stockade shop;
    private final String name;
    private final long ttlMillis;
    private final long deadline;
    private final boolean limited;
    private long pause = PAUSE_MIN;

    /** `waitMillis` below 0: without end. */
    Election(Stockade shop, String name, long ttlMillis, long waitMillis) {
        this.shop = shop;
        this.name = name;
        this.ttlMillis = ttlMillis;
        this.limited = waitMillis >= 0;
        this.deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMillis);
    }

    Lease stand() {
        for (;;) {
            try {
                Lease term = shop.lease(name, ttlMillis, Math.min(LOOK_MAX, millisLeft()));
                if (term.isValid()) {
                    return term;
                }
                term.close(); /* its time was over before anybody heard of it */
                rest();
            } catch (Held another) { /* that was waited for already */
                mayGoOn(another);
                pause = PAUSE_MIN;
            } catch (StockadeException failed) {
                mayGoOn(failed);
                rest();
            }
        }
    }

    private long millisLeft() {
        if (!limited) {
            return Long.MAX_VALUE;
        }
        long nanos = deadline - System.nanoTime();
        return nanos <= 0 ? 0 : TimeUnit.NANOSECONDS.toMillis(nanos + 999_999);
    }

    private void mayGoOn(StockadeException failed) {
        boolean passes = failed instanceof Held || failed instanceof Unreachable
                         || failed instanceof Busy || failed instanceof LeaseDown
                         || failed instanceof StoreFailed || failed instanceof Stale
                         || failed instanceof Unknown; /* revoked before anybody had it */
        if (!passes || millisLeft() == 0) {
            throw failed;
        }
    }

    /** Half of it is left to chance, so that a crowd spreads out. */
    private void rest() {
        long millis = pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2);
        pause = Math.min(pause * 2, PAUSE_MAX);
        try {
            Thread.sleep(Math.min(millis, millisLeft()));
        } catch (InterruptedException now) {
            Thread.currentThread().interrupt();
            throw new Interrupted("interrupted while it stood for " + name);
        }
    }
}
