// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The thread was interrupted while it waited for a lease, and has none. Its interrupt status is
 * set.
 */
public final class Interrupted extends StockadeException {
    private static final long serialVersionUID = 1;

    Interrupted(String message) {
        super("INTERRUPTED", message);
    }
}
