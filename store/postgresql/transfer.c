/* SPDX-License-Identifier: Apache-2.0 */
/* Moves rows out of a store in PostgreSQL, or into one: see store/transfer.h. They go by COPY, in
 * one transaction, under a lock that keeps daemons from changing anything. Daemons still read, and
 * see the old rows until the commit: so rows are deleted, and no table is truncated. */
#include "store/transfer.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/uri.h"
#include "store/postgresql/kept_out.h"
#include "store/postgresql/pg.h"
#include "store/postgresql/schema.h"
#include "store/postgresql/statements.h"

enum {
    TIMEOUT_MS = 10 * 60 * 1000, /* how long the server may be silent */
    PIECE_BYTES = 1 << 16,
    FIND_OUT_TRIES = 20,
    FIND_OUT_AGAIN_MS = 250,
};

/* A move that was stopped must not hold up the daemons for ever. */
static const char setup[] = "SET lock_timeout = '10s';"
                            "SET idle_in_transaction_session_timeout = '60s';"
                            "SET client_connection_check_interval = '1s'";

/* The lock for which daemons' changes wait (as PG_FLOOR_EXCLUSIVE). No other table is locked. A
 * program that has presented a token has the resource's row locked; we wait for it when we delete
 * that row or end its lease. */
static const char hold[] = "BEGIN; LOCK TABLE stockade.meta IN EXCLUSIVE MODE";

struct pg_transfer {
    struct transfer base;
    char *uri; /* owned; has a password */
    enum transfer_use use;
    struct pg pg;
    bool copying; /* a COPY into `table` is under way */
    enum transfer_table table;
    struct buf piece; /* rows that were not sent yet */
};

/* How each table is read, and into which columns it is put, in the order of transfer.h. */
static const struct {
    const char *select, *put;
} sql_of[TRANSFER_TABLES] = {
    [TRANSFER_RESOURCES] =
        {"SELECT id, name, token, stockade.state_of(token, state, ended), type, anonymous,"
         " CASE WHEN token <= ended THEN 0 ELSE holds END, ttl_ms, resource.session, connection,"
         " changed_ms, receipts_gone, receipts_token, fields, owner, value"
         " FROM stockade.resource, stockade.meta ORDER BY id",
         "stockade.resource(id, name, token, state, type, anonymous, holds, ttl_ms, session,"
         " connection, changed_ms, receipts_gone, receipts_token, fields, owner, value)"},
    [TRANSFER_FIELDS] = {"SELECT resource, field, value FROM stockade.field"
                         " ORDER BY resource, field",
                         "stockade.field(resource, field, value)"},
    [TRANSFER_RECEIPTS] = {"SELECT resource, id, token, fingerprint, resp3, written_ms, reply"
                           " FROM stockade.receipt ORDER BY resource, id",
                           "stockade.receipt(resource, id, token, fingerprint, resp3, written_ms,"
                           " reply)"},
    /* Resources that were forgotten have no receipts. */
    [TRANSFER_RETIRED] = {"SELECT resource, token, retired_ms FROM stockade.retired"
                          " WHERE resource IN (SELECT id FROM stockade.resource) ORDER BY number",
                          "stockade.retired(resource, token, retired_ms)"},
    [TRANSFER_HEADS] = {"SELECT chain, lines, hash FROM stockade.audit", NULL},
};

static struct pg_transfer *of(struct transfer *transfer)
{
    return (struct pg_transfer *)transfer;
}

static bool explain(struct pg_transfer *transfer)
{
    struct transfer *base = &transfer->base;
    struct pg *pg = &transfer->pg;
    char holder[PG_HOLDER_MAX];

    if (pg->conn == NULL || !kept_out_is_why(pg)) {
        text_print(base->why, sizeof base->why, "%s: %s", base->label, pg->why);
        return false;
    }
    if (pg_run(pg, "ROLLBACK")) /* nothing can be asked in a transaction that has failed */
        pg_schema_holder(pg, holder);
    else
        holder[0] = '\0';
    text_print(base->why, sizeof base->why,
               "%s: another transaction has had a lock on the store for 10 s%s%s", base->label,
               holder[0] != '\0' ? ": " : "", holder);
    return false;
}

static bool exec(struct pg_transfer *transfer, const char *commands)
{
    return (transfer->pg.conn != NULL && pg_run(&transfer->pg, commands)) || explain(transfer);
}

/* Return the rows of a query that gives at least one. NULL: it failed. */
static PGresult *query(struct pg_transfer *transfer, const char *text)
{
    struct pg *pg = &transfer->pg;

    pg_send_text(pg, text);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (pg_end(pg) && pg->pq.PQntuples(result) > 0)
        return result;
    pg->pq.PQclear(result);
    (void)explain(transfer);
    return NULL;
}

static bool begin(struct transfer *base)
{
    return exec(of(base), of(base)->use == TRANSFER_READ
                              ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                              : hold);
}

static bool facts(struct transfer *base, struct transfer_facts *facts)
{
    const struct pg *pg = &of(base)->pg;
    PGresult *result =
        query(of(base), "SELECT session, floor,"
                        " (SELECT coalesce(max(token), 0) FROM stockade.resource),"
                        " stockade.now_ms() + clock_ms,"
                        " greatest((SELECT last_value + 999 FROM stockade.resource_id),"
                        " (SELECT max(id) FROM stockade.resource)),"
                        " (SELECT count(*) FROM stockade.resource)"
                        " + (SELECT count(*) FROM stockade.field)"
                        " + (SELECT count(*) FROM stockade.receipt)"
                        " + (SELECT count(*) FROM stockade.retired)"
                        " + (SELECT count(*) FROM stockade.audit),"
                        " identity IS NOT NULL AND (identity, server)"
                        " IS DISTINCT FROM (stockade.identity(), stockade.server()),"
                        " (SELECT count(*) FROM stockade.resource),"
                        " move_part::int8, move_id, move_where FROM stockade.meta");

    if (result == NULL)
        return false;
    *facts = (struct transfer_facts){
        .opening = pg_value_int64(pg, result, 0, 0),
        .floor = pg_value_int64(pg, result, 0, 1),
        .token = pg_value_int64(pg, result, 0, 2),
        .now_ms = pg_value_int64(pg, result, 0, 3),
        .ids = pg_value_int64(pg, result, 0, 4),
        .rows = pg_value_int64(pg, result, 0, 5),
        .strange = pg_value_bool(pg, result, 0, 6),
        .resources = pg_value_int64(pg, result, 0, 7),
        .mark.part = (enum transfer_part)pg_value_int64(pg, result, 0, 8),
    };
    pg_value_text(pg, result, 0, 9, facts->mark.id, sizeof facts->mark.id);
    pg_value_text(pg, result, 0, 10, facts->mark.where, sizeof facts->mark.where);
    pg->pq.PQclear(result);
    return true;
}

/* Reading a stream of tuples that comes in pieces of any length. */

static const char signature[11] = "PGCOPY\n\377\r\n";

struct stream {
    struct pg_transfer *transfer;
    struct buf data;
    size_t at;
    bool more;
};

/* Fetch until so many bytes are here. False: they do not come. */
static bool has(struct stream *stream, size_t len)
{
    while (stream->data.len - stream->at < len)
        if (!stream->more || !pg_copy_take(&stream->transfer->pg, &stream->data, &stream->more))
            return false;
    return true;
}

static int64_t number(struct stream *stream, size_t len)
{
    int64_t value = len > 0 && stream->data.data[stream->at] < 0 ? -1 : 0;

    for (size_t i = 0; i < len; i++)
        value = (int64_t)((uint64_t)value << 8 | (unsigned char)stream->data.data[stream->at + i]);
    stream->at += len;
    return value;
}

/* Take the next tuple. The buffer moves while it is fetched, so until the tuple is whole, offsets
 * stand for the cells' bytes. */
static bool take_tuple(struct stream *stream, const char *columns, struct transfer_cell *cells,
                       bool *end)
{
    size_t offsets[TRANSFER_COLUMNS_MAX] = {0};
    int count;

    buf_consume(&stream->data, stream->at);
    stream->at = 0;
    if (!has(stream, 2))
        return false;
    count = (int)number(stream, 2);
    *end = count == -1;
    if (*end)
        return true;
    check(count == (int)strlen(columns));
    for (int i = 0; i < count; i++) {
        if (!has(stream, 4))
            return false;
        int64_t len = number(stream, 4);
        cells[i] = (struct transfer_cell){.is_null = len < 0};
        if (len < 0)
            continue;
        if (!has(stream, (size_t)len))
            return false;
        offsets[i] = stream->at;
        cells[i].bytes.len = (size_t)len;
        if (transfer_is_bytes(columns[i]))
            stream->at += (size_t)len;
        else
            cells[i].number = number(stream, (size_t)len);
    }
    for (int i = 0; i < count; i++)
        if (!cells[i].is_null)
            cells[i].bytes.data = stream->data.data + offsets[i];
    return true;
}

static bool each_tuple(struct stream *stream, const char *columns, transfer_row *row, void *context)
{
    struct transfer_cell cells[TRANSFER_COLUMNS_MAX];
    bool end = false;

    if (!has(stream, sizeof signature + 8))
        return false;
    stream->at = sizeof signature + 8;
    while (take_tuple(stream, columns, cells, &end)) {
        if (end)
            return !has(stream, 1) && !stream->more && !stream->transfer->pg.failed;
        if (!row(context, cells))
            return false;
    }
    return false;
}

static bool each(struct transfer *base, enum transfer_table table, transfer_row *row, void *context)
{
    struct pg_transfer *transfer = of(base);
    struct stream stream = {.transfer = transfer, .more = true};
    char copy[700];

    text_print(copy, sizeof copy, "COPY (%s) TO STDOUT (FORMAT binary)", sql_of[table].select);
    if (!pg_copy_start(&transfer->pg, copy))
        return explain(transfer);
    bool good = each_tuple(&stream, transfer_columns(table), row, context);
    buf_free(&stream.data);
    if (!good && (transfer->pg.failed || transfer->pg.conn == NULL))
        return explain(transfer);
    if (!good) /* the caller has stopped, for its own reason: the rest is not wanted */
        pg_drop(&transfer->pg);
    return good;
}

/* Writing. */

static void put_number(struct buf *buf, int64_t number, size_t len)
{
    uint64_t value = htobe64((uint64_t)number);

    check(len <= sizeof value);
    buf_append(buf, (const char *)&value + sizeof value - len, len);
}

static bool flush(struct pg_transfer *transfer)
{
    bool sent = pg_copy_put(&transfer->pg, buf_bytes(&transfer->piece));

    buf_clear(&transfer->piece);
    return sent || explain(transfer);
}

static bool start(struct pg_transfer *transfer, enum transfer_table table)
{
    char copy[400];

    text_print(copy, sizeof copy, "COPY %s FROM STDIN (FORMAT binary)", sql_of[table].put);
    if (!pg_copy_start(&transfer->pg, copy))
        return explain(transfer);
    transfer->copying = true;
    transfer->table = table;
    buf_append(&transfer->piece, signature, sizeof signature);
    put_number(&transfer->piece, 0, 8);
    return true;
}

/* End the COPY that is under way. */
static bool finish(struct pg_transfer *transfer)
{
    if (!transfer->copying)
        return true;
    put_number(&transfer->piece, -1, 2);
    transfer->copying = false;
    return flush(transfer) && (pg_copy_put_end(&transfer->pg, NULL) || explain(transfer));
}

static void put_cell(struct buf *buf, char column, const struct transfer_cell *cell)
{
    size_t len = column == 's' ? 2 : column == 'b' ? 1 : 8;

    if (cell->is_null) {
        put_number(buf, -1, 4);
    } else if (transfer_is_bytes(column)) {
        put_number(buf, (int64_t)cell->bytes.len, 4);
        buf_append_bytes(buf, cell->bytes);
    } else {
        put_number(buf, (int64_t)len, 4);
        put_number(buf, cell->number, len);
    }
}

/* Append SQL that gives the text, whatever is in it. */
static void quote(struct buf *sql, const char *text, size_t len)
{
    buf_append_text(sql, "convert_from(decode('");
    for (size_t i = 0; i < len; i++)
        buf_printf(sql, "%02x", (unsigned char)text[i]);
    buf_append_text(sql, "', 'hex'), 'UTF8')");
}

static bool exec_buf(struct pg_transfer *transfer, struct buf *sql)
{
    buf_append(sql, "", 1);
    bool good = exec(transfer, sql->data);
    buf_free(sql);
    return good;
}

/* Put the head of a chain; of two heads the later one stays. It gets no identity: by that the audit
 * sees that the store is not the one that it was. */
static bool put_head(struct pg_transfer *transfer, const struct transfer_cell *cells)
{
    struct buf sql = {0};

    buf_append_text(&sql, "INSERT INTO stockade.audit(chain, lines, hash, identity) VALUES(");
    quote(&sql, cells[0].bytes.data, cells[0].bytes.len);
    buf_printf(&sql, ", %lld, ", (long long)cells[1].number);
    quote(&sql, cells[2].bytes.data, cells[2].bytes.len);
    buf_append_text(&sql, ", '') ON CONFLICT (chain) DO UPDATE SET lines = excluded.lines,"
                          " hash = excluded.hash WHERE excluded.lines > audit.lines");
    return exec_buf(transfer, &sql);
}

static bool put(struct transfer *base, enum transfer_table table, const struct transfer_cell *cells)
{
    struct pg_transfer *transfer = of(base);
    const char *columns = transfer_columns(table);

    if (transfer->copying && table != transfer->table && !finish(transfer))
        return false;
    if (sql_of[table].put == NULL)
        return put_head(transfer, cells);
    if (!transfer->copying && !start(transfer, table))
        return false;
    put_number(&transfer->piece, (int64_t)strlen(columns), 2);
    for (int i = 0; columns[i] != '\0'; i++)
        put_cell(&transfer->piece, columns[i], &cells[i]);
    return transfer->piece.len < PIECE_BYTES || flush(transfer);
}

static bool clear(struct transfer *base)
{
    return exec(of(base), "DELETE FROM stockade.resource; DELETE FROM stockade.field;"
                          "DELETE FROM stockade.receipt; DELETE FROM stockade.retired;"
                          "UPDATE stockade.meta SET ended = 0;"
                          "UPDATE stockade.audit SET identity = ''");
}

static bool revoke(struct transfer *base, int64_t *count)
{
    struct pg_transfer *transfer = of(base);
    struct buf sql = {0};

    if (!finish(transfer))
        return false;
    PGresult *result = query(transfer, "SELECT (SELECT count(*) FROM stockade.resource"
                                       " WHERE state = 1 AND token > ended),"
                                       " stockade.now_ms() + clock_ms FROM stockade.meta");
    if (result == NULL)
        return false;
    *count = pg_value_int64(&transfer->pg, result, 0, 0);
    long long now_ms = pg_value_int64(&transfer->pg, result, 0, 1);
    transfer->pg.pq.PQclear(result);
    buf_printf(&sql,
               "PREPARE retire AS %s; EXECUTE retire(%lld); DEALLOCATE retire;"
               "PREPARE revoke AS %s; EXECUTE revoke(%lld); DEALLOCATE revoke",
               transfer->pg.texts[PG_RETIRE_ALL], now_ms, transfer->pg.texts[PG_REVOKE_ALL],
               now_ms);
    return exec_buf(transfer, &sql);
}

/* Write the opening and the floor. ANALYZE, since daemons' plans may be from when the tables were
 * empty. */
static bool set(struct transfer *base, int64_t opening, int64_t floor)
{
    struct buf sql = {0};

    if (!finish(of(base)))
        return false;
    buf_printf(&sql,
               "UPDATE stockade.meta SET session = %lld, floor = %lld;"
               "SELECT setval('stockade.resource_id', greatest(last_value,"
               " (SELECT max(id) FROM stockade.resource))) FROM stockade.resource_id;"
               "ANALYZE stockade.resource, stockade.field, stockade.receipt, stockade.retired",
               (long long)opening, (long long)floor);
    return exec_buf(of(base), &sql);
}

static bool mark(struct transfer *base, const struct transfer_mark *mark)
{
    struct buf sql = {0};

    buf_printf(&sql, "UPDATE stockade.meta SET move_part = %d, move_id = ", mark->part);
    quote(&sql, mark->id, strlen(mark->id));
    buf_append_text(&sql, ", move_where = ");
    quote(&sql, mark->where, strlen(mark->where));
    return exec_buf(of(base), &sql);
}

/* Find out what became of a transaction whose COMMIT has no answer. False: it is not there, or that
 * could not be found out in time. */
static bool find_out(struct pg_transfer *transfer, const char *id)
{
    static const struct timespec moment = {.tv_nsec = FIND_OUT_AGAIN_MS * 1000000L};
    struct pg *pg = &transfer->pg;
    char why[STORE_WHY_MAX], sql[128], status[16];

    text_print(why, sizeof why, "%s", pg->why);
    text_print(sql, sizeof sql, "SELECT coalesce(pg_xact_status('%s'), '')", id);
    for (int tries = 0; tries < FIND_OUT_TRIES; tries++) {
        if (tries > 0)
            (void)nanosleep(&moment, NULL);
        PGresult *result = pg_connect(pg) && pg_run(pg, setup) ? query(transfer, sql) : NULL;
        if (result == NULL)
            continue;
        pg_value_text(pg, result, 0, 0, status, sizeof status);
        pg->pq.PQclear(result);
        if (strcmp(status, "committed") == 0)
            return true;
        if (strcmp(status, "aborted") != 0)
            continue;
        text_print(pg->why, sizeof pg->why, "%s", why);
        return explain(transfer);
    }
    text_print(pg->why, sizeof pg->why, "%s; whether it was done could not be found out", why);
    return explain(transfer);
}

/* A commit that no longer waited for its standby may be lost, so it has failed. */
static bool commit(struct transfer *base)
{
    struct pg_transfer *transfer = of(base);
    struct pg *pg = &transfer->pg;
    char id[32];

    PGresult *result = query(transfer, "SELECT pg_current_xact_id()::text");
    if (result == NULL)
        return false;
    pg_value_text(pg, result, 0, 0, id, sizeof id);
    pg->pq.PQclear(result);
    if (exec(transfer, "COMMIT"))
        return !pg->doubtful || explain(transfer);
    return pg->sqlstate[0] == '\0' && find_out(transfer, id);
}

/* The caller gives up, but has to put things right yet: so the watch is asked no more whether to go
 * on. The connection may be gone; then make it anew. */
static void undo(struct transfer *base)
{
    struct pg_transfer *transfer = of(base);
    struct pg *pg = &transfer->pg;

    pg->go_on = NULL;
    if (pg->conn != NULL && transfer->copying)
        (void)pg_copy_put_end(pg, "given up");
    transfer->copying = false;
    buf_clear(&transfer->piece);
    if (pg->conn == NULL || !pg_run(pg, "ROLLBACK"))
        (void)(pg_connect(pg) && pg_run(pg, setup));
}

static void close_it(struct transfer *base)
{
    struct pg_transfer *transfer = of(base);

    pg_drop(&transfer->pg);
    buf_free(&transfer->piece);
    mem_free_secret(transfer->uri);
    free(transfer);
}

static const struct transfer_impl impl = {
    .begin = begin,
    .facts = facts,
    .each = each,
    .clear = clear,
    .put = put,
    .revoke = revoke,
    .set = set,
    .mark = mark,
    .commit = commit,
    .undo = undo,
    .close = close_it,
};

static bool go_on(void *context)
{
    const struct transfer *transfer = context;
    return transfer->watch.step == NULL ||
           transfer->watch.step(transfer->watch.context, "waiting", 0, 0);
}

static bool open_it(struct pg_transfer *transfer)
{
    struct pg *pg = &transfer->pg;

    if (!pg_connect(pg) || !pg_run(pg, setup) ||
        !(transfer->use == TRANSFER_FILL ? pg_schema_prepare(pg) : pg_schema_is_current(pg)) ||
        !pg_schema_is_ours(pg))
        return explain(transfer);
    PGresult *result =
        query(transfer, "SELECT concat('database ', system_identifier, '/',"
                        " (SELECT oid FROM pg_database WHERE datname = current_database()))"
                        " FROM pg_control_system()");
    if (result == NULL)
        return false;
    pg_value_text(pg, result, 0, 0, transfer->base.same, sizeof transfer->base.same);
    pg->pq.PQclear(result);
    return true;
}

struct transfer *transfer_postgresql(const char *uri, enum transfer_use use,
                                     struct maintenance_watch watch, char *why, size_t why_size)
{
    static const char *const texts[] = {
#define X(name, sql) sql,
        PG_STATEMENT_MAP(X)
#undef X
    };
    struct pg_transfer *transfer = mem_zalloc(sizeof *transfer);
    struct buf label = {0};

    transfer->base.impl = &impl;
    transfer->base.watch = watch;
    transfer->uri = mem_strdup(uri);
    transfer->use = use;
    transfer->pg = (struct pg){.uri = transfer->uri,
                               .name = PG_MAINTENANCE_NAME,
                               .texts = texts,
                               .timeout_ms = TIMEOUT_MS,
                               .go_on = go_on,
                               .go_on_context = transfer};
    uri_append_masked(&label, uri);
    text_print(transfer->base.label, sizeof transfer->base.label, "%.*s", (int)label.len,
               label.data);
    buf_free(&label);
    if (open_it(transfer))
        return &transfer->base;
    text_print(why, why_size, "%s", transfer->base.why);
    close_it(&transfer->base);
    return NULL;
}
