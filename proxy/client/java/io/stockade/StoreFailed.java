// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The store failed (the disk is full, say). Nothing of this command was changed.
 */
public final class StoreFailed extends StockadeException {
    private static final long serialVersionUID = 1;

    StoreFailed(String message) {
        super("STORE", message);
    }
}
