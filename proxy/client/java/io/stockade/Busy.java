// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * A queue of the daemon is full, or it is stopping, until this call had no time left. Nothing was
 * changed; try again later.
 */
public final class Busy extends StockadeException {
    private static final long serialVersionUID = 1;

    Busy(String message) {
        super("BUSY", message);
    }
}
