// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * The daemon did not answer in time, and the write may have been applied. {@link #id()} is the
 * write's ID: {@code shop.command("RECEIPT", resource, token, id)} says later what became of it.
 */
public final class Unsure extends StockadeException {
    private static final long serialVersionUID = 1;

    /** The write's ID, or null. */
    private final String id;

    Unsure(String message, String id) {
        super("UNSURE", message);
        this.id = id;
    }

    /**
     * The ID under which the write was sent.
     *
     * @return null where it had none
     */
    public String id() {
        return id;
    }
}
