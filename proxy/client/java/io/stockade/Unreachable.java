// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The daemon did not answer in time, and nothing was changed.
 */
public final class Unreachable extends StockadeException {
    private static final long serialVersionUID = 1;

    Unreachable(String message) {
        super("UNREACHABLE", message);
    }
}
