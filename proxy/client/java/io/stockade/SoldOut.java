// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The result would have left its bounds: fewer are there than were to be taken. Nothing was
 * changed.
 */
public final class SoldOut extends StockadeException {
    private static final long serialVersionUID = 1;

    SoldOut(String message) {
        super("RANGE", message);
    }
}
