// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The token is not the newest one any more: the lease passed on, was released, or was revoked.
 * Nothing was changed. Take the lease again, read again, decide again.
 */
public final class Stale extends StockadeException {
    private static final long serialVersionUID = 1;

    Stale(String message) {
        super("STALE", message);
    }
}
