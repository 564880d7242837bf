// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The lease service cannot be reached or refuses. New leases have to wait; holders may write.
 */
public final class LeaseDown extends StockadeException {
    private static final long serialVersionUID = 1;

    LeaseDown(String message) {
        super("LEASEDOWN", message);
    }
}
