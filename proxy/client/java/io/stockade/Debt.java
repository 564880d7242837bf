// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Leases that were perhaps granted to a request whose answer nobody waits for any more. The keeper
 * asks once more with its ID, until there is an answer or those leases have ended, and gives back
 * what that has got.
 */
final class Debt extends Keeper.Timed implements Keeper.Pending {
    private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(100);

    private final Keeper keeper;
    private final List<String> resources;
    private final Object[] words;
    private final long until;

    /** The request without its WAIT; its leases would last for so many nanoseconds. */
    Debt(Keeper keeper, List<String> resources, Object[] words, long ttl) {
        this.keeper = keeper;
        this.resources = resources;
        this.words = words;
        this.until = System.nanoTime() + ttl;
    }

    void begin() {
        keeper.lock.lock();
        try {
            keeper.schedule(this, System.nanoTime());
        } finally {
            keeper.lock.unlock();
        }
    }

    /* All that follows is under the keeper's lock. */

    private void next(long at) {
        if (at - until < 0) {
            keeper.schedule(this, at);
        }
    }

    @Override
    void fire(long now) {
        if (keeper.canSend(now)) {
            keeper.send(this, now, words);
        } else {
            next(keeper.retryAt());
        }
    }

    @Override
    public void on(Object reply, long now) {
        if (reply instanceof Decoder.ErrorReply error && error.is("BUSY")) {
            next(now + PAUSE);
        } else if (reply instanceof List<?> tokens) {
            for (int i = 0; i < resources.size(); i++) {
                keeper.send(Place.IGNORED, now, "RELEASE", resources.get(i), tokens.get(i));
            }
        }
    }

    @Override
    public void broken(long now, String why) {
        next(now + PAUSE);
    }
}
