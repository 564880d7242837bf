// SPDX-License-Identifier: Apache-2.0
package io.stockade;

/**
 * What went wrong: the base of all of this package's errors. They are unchecked. {@link #code()} is
 * the first word of the daemon's error, such as {@code STALE}, and stable; the message says more.
 */
public class StockadeException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The error's first word. */
    private final String code;

    StockadeException(String code, String message) {
        super(message);
        this.code = code;
    }

    /**
     * The error's first word.
     *
     * @return such as {@code STALE}
     */
    public String code() {
        return code;
    }

    /** The error that the daemon's reply stands for: a code, a space, and what it says. */
    static StockadeException of(String reply) {
        int space = reply.indexOf(' ');
        String code = space < 0 ? reply : reply.substring(0, space);
        return switch (code) {
            case "STALE" -> new Stale(reply);
            case "UNKNOWN" -> new Unknown(reply);
            case "RANGE" -> new SoldOut(reply);
            case "LEASEDOWN" -> new LeaseDown(reply);
            case "BUSY" -> new Busy(reply);
            case "STORE" -> new StoreFailed(reply);
            case "GUARDED" -> new Guarded(reply);
            default -> new StockadeException(code, reply);
        };
    }
}
