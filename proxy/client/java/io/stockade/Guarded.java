// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * SQL touched a guarded row whose token was not presented. Nothing was changed.
 */
public final class Guarded extends StockadeException {
    private static final long serialVersionUID = 1;

    Guarded(String message) {
        super("GUARDED", message);
    }
}
