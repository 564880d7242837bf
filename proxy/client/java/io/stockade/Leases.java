// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.AbstractList;
import java.util.List;

/** The leases on several resources, taken together, in the order asked. To be closed. */
public final class Leases extends AbstractList<Lease> implements AutoCloseable {
    private final List<Lease> leases;

    Leases(List<Lease> leases) {
        this.leases = List.copyOf(leases);
    }

    @Override
    public Lease get(int index) {
        return leases.get(index);
    }

    @Override
    public int size() {
        return leases.size();
    }

    /**
     * The lease on one of them.
     *
     * @param resource its name
     * @return the lease
     * @throws IllegalArgumentException it is none of them
     */
    public Lease get(String resource) {
        for (Lease lease : leases) {
            if (lease.resource().equals(resource)) {
                return lease;
            }
        }
        throw new IllegalArgumentException("no lease on " + resource);
    }

    /**
     * Have this called when one of them is lost, once for each.
     *
     * @param listener stops what the program does under these leases
     */
    public void onLost(Runnable listener) {
        leases.forEach(lease -> lease.onLost(listener));
    }

    /**
     * Present all tokens to a transaction of the program's own connection; see {@link
     * Lease#present}.
     *
     * @param connection one in a transaction
     * @throws SQLException SQLite failed
     */
    public void present(Connection connection) throws SQLException {
        for (Lease lease : leases) {
            lease.present(connection);
        }
    }

    /** Give them back; never throws. See {@link Lease#close}. */
    @Override
    public void close() {
        leases.forEach(Lease::close);
    }
}
