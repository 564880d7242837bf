// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A lease that was granted. It is renewed by itself until it is closed. Each write carries its
 * token, and the store applies it only while the token is the newest one granted: where the lease
 * has passed on, it throws {@link Stale} and changes nothing, however long this program stood
 * still.
 *
 * <p>A lease may be used by any thread, and handed from one to another.
 */
public final class Lease implements AutoCloseable {
    private static final String NO_RIGHT = "42501"; // insufficient_privilege
    private static final Pattern REFUSED = Pattern.compile("\\b(STALE|UNKNOWN|GUARDED) .*");

    private final Stockade shop;
    private final String resource;
    private final Grant grant;
    private final String id; /* of what is written by this object; null: each write has its own */

    Lease(Stockade shop, String resource, Grant grant) {
        this(shop, resource, grant, null);
    }

    private Lease(Stockade shop, String resource, Grant grant, String id) {
        this.shop = shop;
        this.resource = resource;
        this.grant = grant;
        this.id = id;
    }

    /**
     * The same lease, for one write under an ID of your own, such as an order's number: a write
     * that is repeated with it is applied once, and gets the first reply, by another process, too.
     *
     * <pre>{@code
     * long left = lease.withId("order 17").take(1);
     * }</pre>
     *
     * @param id any text of 1 to 512 bytes; another write needs another
     * @return the lease; to close it closes both
     */
    public Lease withId(String id) {
        return new Lease(shop, resource, grant, Stockade.checkId(id));
    }

    /** The ID of the next write by this object: the program's own, or a new one. */
    String writeId() {
        return id == null ? Request.newId() : id;
    }

    boolean hasId() {
        return id != null;
    }

    /**
     * Keep it, of which the daemon has not said how much of its TTL is left. It ran from a moment
     * after it was asked for; where that is long ago, it is renewed first.
     */
    void begin(long askedAt, long ttlMillis) {
        long ttl = TimeUnit.MILLISECONDS.toNanos(ttlMillis);
        if (System.nanoTime() - askedAt < ttl / 10) {
            grant.begin(askedAt, ttl, ttl, true);
            return;
        }
        Calls.Answer answer = askToRenew(ttlMillis);
        grant.begin(answer.askedAt(), ttl, nanosOf(answer), true);
    }

    private Calls.Answer askToRenew(long ttlMillis) {
        return shop.calls().run(Calls.Kind.WRITE,
                                Request.of("RENEW", resource, token(), ttlMillis));
    }

    private static long nanosOf(Calls.Answer renewed) {
        return TimeUnit.MILLISECONDS.toNanos((Long) Calls.check(renewed.reply()));
    }

    /**
     * The fencing token.
     *
     * @return a number that is larger than that of each lease on this resource before
     */
    public long token() {
        return grant.name().token();
    }

    /**
     * The resource.
     *
     * @return its name, which is also its key
     */
    public String resource() {
        return resource;
    }

    /**
     * Does it have time left, for certain? This is for what happens outside the store, such as a
     * payment; writes in the store are judged there. Judged by System.nanoTime(), from before the
     * daemon was asked, less a hundredth and 2 ms for clocks that differ.
     *
     * @return false once it was lost, was closed, or has run out
     */
    public boolean isValid() {
        return grant.nanosLeft() > 0;
    }

    /**
     * How much time is left, judged as above.
     *
     * @return milliseconds; 0: none
     */
    public long leftMillis() {
        return TimeUnit.NANOSECONDS.toMillis(grant.nanosLeft());
    }

    /**
     * Has it been lost: revoked, taken by another, or not renewed in time?
     *
     * @return true from then on
     */
    public boolean isLost() {
        return grant.isLost();
    }

    /**
     * Have this called when the lease is lost: at once where the daemon tells of it, and with a
     * tenth of the TTL to go where the daemon cannot be reached. It is called once, on a thread of
     * its own; at once where the lease is lost already; never where it is closed first.
     *
     * @param listener stops what the program does under this lease
     */
    public void onLost(Runnable listener) {
        grant.onLost(listener);
    }

    /**
     * Renew it now, with another TTL from here on.
     *
     * @param ttl from 10 ms to a day
     */
    public void renew(Duration ttl) {
        Calls.Answer answer = askToRenew(ttl.toMillis());
        long left = judged(List.of(this), () -> nanosOf(answer));
        grant.renewed(answer.askedAt(), ttl.toNanos(), left);
    }

    /** Do what is judged by their tokens. They know of a {@link Stale} before the program does. */
    static <T> T judged(Collection<Lease> leases, Supplier<T> act) {
        try {
            return act.get();
        } catch (Stale refused) {
            if (leases.size() == 1) {
                leases.forEach(lease -> lease.grant.onStale(refused.getMessage()));
            } else {
                leases.forEach(lease -> lease.grant.suspect());
            }
            throw refused;
        }
    }

    /* Data: the key that is the resource. */

    /**
     * Read the resource's value, while the token is current.
     *
     * @return the value; null: there is none
     * @throws Stale the lease has passed on
     */
    public String get() {
        return text(fenced("GET", resource));
    }

    /**
     * Write the resource's value.
     *
     * @param value the value
     * @throws Stale the lease has passed on; nothing was changed
     */
    public void set(String value) {
        fenced("SET", resource, value);
    }

    /**
     * Take so many from the resource's value, a number, if so many are there.
     *
     * @param count how many, from 0 on
     * @return how many are left
     * @throws SoldOut fewer are there; nothing was changed
     * @throws Stale the lease has passed on; nothing was changed
     */
    public long take(long count) {
        return take(count, 0);
    }

    /**
     * Take so many from the resource's value, if at least `min` are left then.
     *
     * @param count how many, from 0 on
     * @param min how many have to be left
     * @return how many are left
     */
    public long take(long count, long min) {
        return (Long) fenced("DECRBY", resource, checkCount(count), "MIN", min);
    }

    /**
     * Put so many back, or add them.
     *
     * @param count how many, from 0 on
     * @return how many are there now
     */
    public long put(long count) {
        return (Long) fenced("INCRBY", resource, checkCount(count));
    }

    /**
     * Read a field of the resource's hash, while the token is current.
     *
     * @param field its name
     * @return its value; null: there is none
     */
    public String hget(String field) {
        return text(fenced("HGET", resource, field));
    }

    /**
     * Read the resource's hash, while the token is current.
     *
     * @return its fields and their values; empty where there is none
     */
    public Map<String, String> hgetAll() {
        Map<String, String> hash = new LinkedHashMap<>();
        ((Map<?, ?>) fenced("HGETALL", resource))
            .forEach((field, value) -> hash.put(text(field), text(value)));
        return hash;
    }

    /**
     * Write a field of the resource's hash.
     *
     * @param field its name
     * @param value its value
     */
    public void hset(String field, String value) {
        fenced("HSET", resource, field, value);
    }

    /**
     * Take so many from a field of the resource's hash, if so many are there.
     *
     * @param field its name
     * @param count how many, from 0 on
     * @return how many are left
     * @throws SoldOut fewer are there; nothing was changed
     */
    public long htake(String field, long count) {
        return (Long) fenced("HINCRBY", resource, field, -checkCount(count), "MIN", 0);
    }

    /**
     * Put so many back into a field of the resource's hash, or add them.
     *
     * @param field its name
     * @param count how many, from 0 on
     * @return how many are there now
     */
    public long hput(String field, long count) {
        return (Long) fenced("HINCRBY", resource, field, checkCount(count));
    }

    /** To take fewer than none would be to add, past any bound. */
    static long checkCount(long count) {
        if (count < 0) {
            throw new IllegalArgumentException("a count is from 0 on, not " + count);
        }
        return count;
    }

    /**
     * Run a command under this lease's token: its name, its key, and what follows, such as
     * {@code fenced("HINCRBY", "sku:1042", "stock", -1, "MIN", 0)}. A write has an ID of its own.
     *
     * @param words strings (sent as UTF-8), numbers and byte arrays
     * @return its reply: {@code Long}, {@code String} (or {@code byte[]} where it is no UTF-8),
     *     {@code Double}, {@code Boolean}, {@code List}, {@code Map} or null
     * @throws Stale the lease has passed on; nothing was changed
     */
    public Object fenced(Object... words) {
        if (Stockade.isRead(words)) {
            return one(Calls.Kind.READ, Request.of(fencedWords(null, words)));
        }
        String id = writeId();
        return one(Calls.Kind.WRITE, Request.of(fencedWords(id, words)).withId(id));
    }

    private Object one(Calls.Kind kind, Request request) {
        return judged(List.of(this), () -> shop.calls().one(kind, request));
    }

    /**
     * Not FENCED: that does not say whose token it is, and a token of one resource may happen to be
     * another's number.
     */
    Object[] fencedWords(String id, Object[] words) {
        return Stockade.under(List.of(this), id, words);
    }

    /**
     * Run a statement of SQL under this lease's token.
     *
     * @param statement one statement
     * @param params its parameters: strings, numbers, booleans, byte arrays, nulls
     * @return what it replied
     * @throws Guarded it touched a guarded row of another resource; nothing was changed
     */
    public Rows sql(String statement, Object... params) {
        return shop.sql(List.of(this), statement, params);
    }

    /**
     * Present the token to a transaction of the program's own connection: to the store's SQLite
     * file, with the extension {@code stockade_guard} loaded, or to its PostgreSQL database.
     * Guarded rows of this resource may be changed until it ends. From here on nobody can take the
     * lease over before that transaction has ended, so keep it short.
     *
     * @param connection one in a transaction: autocommit is off, or BEGIN was said
     * @throws SQLException the database failed: the extension is not loaded, there is no
     *     transaction, or the role may not present
     * @throws Stale the lease has passed on
     */
    public void present(Connection connection) throws SQLException {
        boolean postgres =
            connection.getMetaData().getDatabaseProductName().startsWith("PostgreSQL");
        try (PreparedStatement call = connection.prepareStatement(
                 postgres ? "SELECT stockade.present(?, ?)" : "SELECT stockade_present(?, ?)")) {
            call.setString(1, resource);
            call.setLong(2, token());
            call.executeQuery().close();
        } catch (SQLException refused) {
            Matcher reason = REFUSED.matcher(String.valueOf(refused.getMessage()));
            if (!reason.find()) {
                throw NO_RIGHT.equals(refused.getSQLState()) ? mayNotPresent(refused) : refused;
            }
            StockadeException why = StockadeException.of(reason.group());
            why.initCause(refused);
            if (why instanceof Stale) {
                grant.onStale(why.getMessage());
            }
            throw why;
        }
    }

    private static SQLException mayNotPresent(SQLException refused) {
        return new SQLException(refused.getMessage() + ": the role of this connection may not"
                                    + " present; GRANT stockade_app TO it",
                                NO_RIGHT, refused);
    }

    /**
     * Give it back, and say so where that fails.
     *
     * @throws Stale it had passed on already
     * @throws StockadeException it ends with its TTL
     */
    public void release() {
        if (grant.release() != Grant.State.RELEASED) {
            String id = Request.newId();
            shop.calls().one(Calls.Kind.WRITE,
                             Request.of("RELEASE", resource, token(), "ID", id).withId(id));
        }
    }

    /**
     * Give it back. Never throws: a lease that was lost is no concern of what was done in time, and
     * one that cannot be given back ends with its TTL. So an error of the program's own is not
     * hidden, and a sale that was made is not reported as failed.
     */
    @Override
    public void close() {
        try {
            release();
        } catch (Stale passedOn) {
            Keeper.LOG.log(Level.DEBUG, "the lease on {0} had passed on", resource);
        } catch (StockadeException | IllegalStateException failed) {
            Keeper.LOG.log(Level.WARNING, "the lease on {0} ends with its TTL: {1}", resource,
                           failed.getMessage());
        }
    }

    /** As text, whatever its bytes are. */
    static String text(Object value) {
        return value instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8)
                                             : (String) value;
    }

    @Override
    public String toString() {
        return "lease on " + resource + ", token " + token();
    }
}
