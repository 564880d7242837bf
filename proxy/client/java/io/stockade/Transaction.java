// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * A transaction in the making: commands that are applied whole or not at all. Each write brings its
 * lease, and all their tokens have to be current when it is committed. It carries an ID, so that it
 * is applied once even where the connection breaks. For one thread.
 *
 * <pre>{@code
 * shop.transaction().take(lamp, 2).take(bulb, 4).fenced(order, "SET", "order:17", "paid").commit();
 * }</pre>
 */
public final class Transaction {
    private final Stockade shop;
    private final List<Lease> leases;
    private final Set<Lease> all; /* those, and those of its other commands */
    private final Request request = Request.of("MULTI");
    private final List<Boolean> rows = new ArrayList<>();
    private String id = Request.newId();
    private boolean writes;
    private boolean once; /* one of them may change something, and cannot have an ID */
    private boolean done;

    Transaction(Stockade shop, List<Lease> leases) {
        this.shop = shop;
        this.leases = leases;
        this.all = new LinkedHashSet<>(leases);
    }

    /**
     * Give it an ID of your own, such as an order's number, before the first write is added: a
     * transaction that is repeated with it is applied once, and gets the first replies.
     *
     * @param id any text of 1 to 512 bytes
     * @return this
     */
    public Transaction withId(String id) {
        if (writes) {
            throw new IllegalStateException("the ID comes before the first write");
        }
        this.id = Stockade.checkId(id);
        return this;
    }

    /**
     * Add a command under a lease's token.
     *
     * @param lease the lease on its key
     * @param words as for {@link Lease#fenced}
     * @return this
     */
    public Transaction fenced(Lease lease, Object... words) {
        if (lease.hasId()) {
            throw new IllegalArgumentException("a transaction has one ID: its own withId()");
        }
        all.add(lease);
        return add(lease.fencedWords(Stockade.isRead(words) ? null : nextId(), words), false);
    }

    /**
     * Add: write the lease's value.
     *
     * @param lease the lease
     * @param value the value
     * @return this
     */
    public Transaction set(Lease lease, String value) {
        return fenced(lease, "SET", lease.resource(), value);
    }

    /**
     * Add: take so many, if so many are there.
     *
     * @param lease the lease
     * @param count how many
     * @return this
     */
    public Transaction take(Lease lease, long count) {
        return fenced(lease, "DECRBY", lease.resource(), Lease.checkCount(count), "MIN", 0);
    }

    /**
     * Add: put so many back.
     *
     * @param lease the lease
     * @param count how many
     * @return this
     */
    public Transaction put(Lease lease, long count) {
        return fenced(lease, "INCRBY", lease.resource(), Lease.checkCount(count));
    }

    /**
     * Add a statement of SQL, under the leases that the transaction was begun with.
     *
     * @param statement one statement
     * @param params its parameters
     * @return this
     */
    public Transaction sql(String statement, Object... params) {
        return add(Stockade.under(leases, leases.isEmpty() ? null : nextId(),
                                  Stockade.sqlWords(statement, params)), true);
    }

    /**
     * Add a read.
     *
     * @param words as for {@link Stockade#command}
     * @return this
     */
    public Transaction read(Object... words) {
        once |= !Stockade.isRead(words);
        return add(words, false);
    }

    /**
     * Apply it, whole or not at all.
     *
     * @return the replies, in order; {@link Rows} for SQL
     * @throws Stale one of the leases has passed on; nothing was changed
     * @throws SoldOut a value would have left its bounds; nothing was changed
     */
    public List<Object> commit() {
        if (done) {
            throw new IllegalStateException("this transaction was committed already");
        }
        done = true;
        request.add("EXEC");
        Calls.Kind kind = writes ? Calls.Kind.WRITE : once ? Calls.Kind.ONCE : Calls.Kind.READ;
        List<Object> replies = shop.calls().run(kind, request).replies();
        for (Object queued : replies.subList(0, replies.size() - 1)) {
            Calls.check(queued);
        }
        Object reply = Lease.judged(all, () -> Calls.check(replies.get(replies.size() - 1)));
        List<Object> results = new ArrayList<>((List<?>) reply);
        for (int i = 0; i < results.size(); i++) {
            if (rows.get(i)) {
                results.set(i, Rows.of(results.get(i)));
            }
        }
        return results;
    }

    /** The transaction's ID, for the first write; null for those that follow. */
    private String nextId() {
        boolean first = !writes;
        writes = true;
        return first ? id : null;
    }

    private Transaction add(Object[] words, boolean isSql) {
        request.add(words).withId(writes ? id : null);
        rows.add(isSql);
        return this;
    }
}
