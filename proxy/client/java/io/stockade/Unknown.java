// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * This token was never granted for this resource: a bug in the program. Nothing was changed.
 */
public final class Unknown extends StockadeException {
    private static final long serialVersionUID = 1;

    Unknown(String message) {
        super("UNKNOWN", message);
    }
}
