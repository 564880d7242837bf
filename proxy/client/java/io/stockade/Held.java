// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * Somebody else holds the lease, until the time to wait had run out.
 */
public final class Held extends StockadeException {
    private static final long serialVersionUID = 1;

    Held(String message) {
        super("HELD", message);
    }
}
