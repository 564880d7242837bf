/* SPDX-License-Identifier: Apache-2.0 */
/* One statement of a user, from its text to its rows. Most take one trip:
 *
 *   claims, limits ─▶ parsed ─▶ opened ─▶ described ─▶ fetched ─▶ settings
 *             one statement? ┘    └────── schema/2_sql.sql ─┘ a page of rows, and another trip for
 *                                         the next page; or all rows, and deferred checks are made
 *
 * - It runs as the role stockade_sql, in functions of that role, and cannot leave it: see the file
 *   above. This holds as long as the user's own code runs within these functions only, so the role
 *   must have no types, functions or triggers: SQL defines tables, indexes, views and sequences,
 *   and no more.
 * - The server tells what kind of statement it is, not our reading of the text: PREPARE takes only
 *   statements that can be prepared. EXPLAIN (without ANALYZE) and definitions cannot be, so these
 *   have to begin with their words, without a comment: nobody can read them differently.
 * - All settings that it has changed, of the session or the transaction, are set back before
 *   anything else of ours runs; synchronous_commit is one. Its advisory locks end with the
 *   transaction.
 * - Without a token it runs read-only; in an operation that writes, within a savepoint.
 * - Functions and triggers of others may do more than a statement: sql_check in that file looks for
 *   that. Where it could not look, the connection is dropped.
 *
 * Where the statement fails, the transaction has to be rolled back, at least to the operation's
 * savepoint. */
#include "store/postgresql/sql.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "store/postgresql/statements.h"
#include "store/postgresql/tables.h"
#include "store/sql_text.h"

#define PORTAL "stockade_sql"
/* How a statement is opened, as stockade.sql_open is told. */
#define PREPARED "prepared"
#define EXPLAIN  "explain"
#define DEFINE   "define"

enum oid {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_OID = 26,
    OID_FLOAT4 = 700,
    OID_FLOAT8 = 701
};

/* The call under way. */
struct statement {
    struct pg_txn *txn;
    struct sql_call *call;
    const char *how; /* PREPARED, EXPLAIN or DEFINE */
    bool read_only;  /* in a savepoint */
    int64_t left_ms; /* of the time limit */
    size_t columns;
    unsigned *types; /* of the columns; owned */
    struct sql_value *values;
    int64_t changed; /* rows that it has changed; -1: it gives rows */
    int64_t rows;
    bool ended;              /* the last row was handed out */
    struct buf trees, names; /* the tables that were guarded before a definition; owned */
};

static bool is(const struct statement *at, const char *how)
{
    return strcmp(at->how, how) == 0;
}

/* Refusals. */

static enum stk_error refuse(struct sql_call *call, enum stk_error error, const char *why)
{
    text_print(call->why, SQL_WHY_MAX, "%s", why);
    return error;
}

static enum stk_error refuse_late(struct statement *at)
{
    at->txn->broken = at->txn->must_drop = true;
    text_print(at->call->why, SQL_WHY_MAX, "the statement was stopped: it took more than %lld ms",
               (long long)at->call->time_limit_ms);
    return STK_ERR;
}

/* The server has refused: tell whether that is the user's error, or the store's. */
static enum stk_error judge_failure(struct statement *at)
{
    static const struct {
        const char *state; /* or how it begins */
        enum stk_error error;
        const char *why; /* NULL: the server's text */
    } states[] = {
        {"", STK_STORE, NULL}, /* none: the connection failed */
        {"ST001", STK_STALE, NULL},   {"ST002", STK_UNKNOWN, NULL},
        {"ST003", STK_GUARDED, NULL}, {"ST004", STK_NOTOKEN, NULL},
        {"ST006", STK_STORE, NULL},   {"25006", STK_NOTOKEN, SQL_NO_TOKEN},
        {"42501", STK_NOPERM, NULL},  {"53100", STK_STORE, NULL}, /* disk full */
        {"57P", STK_STORE, NULL},                                 /* shutting down */
        {"58", STK_STORE, NULL},                                  /* I/O */
        {"XX", STK_STORE, NULL},                                  /* damage */
    };
    struct pg *pg = at->txn->pg;
    const char *state = pg->sqlstate;
    enum stk_error error = STK_ERR;
    const char *why = NULL;

    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        size_t len = strlen(states[i].state);
        if (len == 0 ? state[0] != '\0' : strncmp(state, states[i].state, len) != 0)
            continue;
        error = states[i].error;
        why = states[i].why;
        break;
    }
    bool stopped = strcmp(state, "57014") == 0; /* so sql_check has not looked at what it left */
    at->txn->must_drop |= stopped || strcmp(state, "ST900") == 0;
    if (error == STK_STORE)
        return pg_stop(at->txn, PG_FAILED);
    at->txn->broken = true;
    if (stopped && at->left_ms <= 0)
        return refuse_late(at);
    /* Where PostgreSQL copies a trigger, its text ends before the function's name. */
    if (is(at, DEFINE) && error == STK_NOPERM && pg->why[0] != '\0' &&
        pg->why[strlen(pg->why) - 1] == ' ')
        why = "the partitioned table has a trigger whose function stockade_sql may not execute: if "
              "the table is guarded, GUARD DROP it first; else GRANT EXECUTE ON that FUNCTION TO "
              "stockade_sql";
    if (why == NULL)
        why = pg->why;
    size_t code = strlen(stk_error_code(error)); /* the texts of guards begin with it */
    if (strncmp(why, stk_error_code(error), code) == 0 && why[code] == ' ')
        why += code + 1;
    enum stk_error refused = refuse(at->call, error, why);
    if (error == STK_NOPERM && why == pg->why)
        text_print(at->call->why, SQL_WHY_MAX,
                   "%s: SQL has the rights that you GRANT to the role "
                   "stockade_sql",
                   why);
    return refused;
}

/* Judging the text. */

/* Move past blanks and the word behind them, and return the word. It has only letters. */
static struct bytes next_word(struct bytes *text)
{
    size_t begin = 0;

    while (begin < text->len && memchr(" \t\n\f\r", text->data[begin], 5) != NULL)
        begin++;
    size_t end = begin;
    while (end < text->len && (text->data[end] | 0x20) >= 'a' && (text->data[end] | 0x20) <= 'z')
        end++;
    struct bytes word = {text->data + begin, end - begin};
    *text = (struct bytes){text->data + end, text->len - end};
    return word;
}

static bool is_one_of(struct bytes word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (bytes_equal_nocase(word, *words))
            return true;
    return false;
}

/* `text` stands behind EXPLAIN. Does it only explain, without ANALYZE, which would run the
 * statement, even one that cannot be prepared? */
static bool only_explains(struct bytes text)
{
    static const char *const runs[] = {"ANALYZE", "ANALYSE", NULL};
    static const char between[] = " \t\n\f\r,0123456789_";
    struct bytes word = next_word(&text);

    if (word.len > 0)
        return !is_one_of(word, runs);
    if (text.len == 0 || text.data[0] != '(')
        return false;
    do {
        text = (struct bytes){text.data + 1, text.len - 1};
        word = next_word(&text);
        if (is_one_of(word, runs))
            return false;
    } while (text.len > 0 && memchr(between, text.data[0], sizeof between - 1) != NULL);
    return text.len > 0 && text.data[0] == ')';
}

/* Does it define a kind of thing that SQL may define? */
static bool may_define(struct bytes text)
{
    static const char *const verbs[] = {"CREATE", "ALTER", "DROP", NULL},
                             *const alone[] = {"ANALYZE", "REINDEX", NULL},
                             *const between[] = {"OR",        "REPLACE", "UNIQUE",    "UNLOGGED",
                                                 "GLOBAL",    "LOCAL",   "TEMPORARY", "TEMP",
                                                 "RECURSIVE", NULL},
                             *const kinds[] = {"TABLE", "INDEX", "VIEW", "SEQUENCE", NULL};
    struct bytes word = next_word(&text);

    if (is_one_of(word, alone))
        return true;
    if (!is_one_of(word, verbs))
        return false;
    do
        word = next_word(&text);
    while (is_one_of(word, between));
    return is_one_of(word, kinds);
}

/* Is it one statement, whatever quotes and comments there are in it? */
static bool is_one_statement(struct bytes text)
{
    while (text.len > 0 && memchr("; \t\n\f\r", text.data[text.len - 1], 6) != NULL)
        text.len--;
    return memchr(text.data, ';', text.len) == NULL;
}

/* Say in at->how in which way the statement may run. Anything but STK_OK: it may not. */
static enum stk_error judge_text(struct statement *at)
{
    struct sql_call *call = at->call;
    const char *flaw = sql_text_refuses(call->statement);
    enum sql_kind kind = sql_kind(call->statement);
    struct bytes rest = call->statement;

    if (flaw != NULL)
        return refuse(call, STK_ERR, flaw);
    if (sql_text_is_blank(call->statement))
        return refuse(call, STK_ERR, SQL_NO_STATEMENT);
    if (kind == SQL_OTHER)
        return refuse(call, STK_ERR,
                      "SQL takes SELECT, VALUES, TABLE, WITH, INSERT, UPDATE, DELETE, MERGE, "
                      "EXPLAIN and, from administrators, CREATE, ALTER, DROP");
    at->how = PREPARED;
    if (bytes_equal_nocase(next_word(&rest), "EXPLAIN"))
        at->how = EXPLAIN;
    else if (kind == SQL_DEFINITION)
        at->how = DEFINE;
    if (is(at, PREPARED))
        return STK_OK;
    if (call->params_count > 0)
        return refuse(call, STK_ERR, "neither EXPLAIN nor DDL takes parameters");
    if (is(at, EXPLAIN) && !only_explains(rest))
        return refuse(call, STK_NOPERM,
                      "SQL takes EXPLAIN [(options)] statement, without ANALYZE and comments");
    if (is(at, EXPLAIN))
        return STK_OK;
    if (call->right != SQL_MAY_DEFINE)
        return refuse(call, STK_NOPERM, SQL_NOT_DDL);
    if (!may_define(call->statement))
        return refuse(call, STK_NOPERM,
                      "SQL defines tables, indexes, views and sequences, in statements that begin "
                      "with CREATE, ALTER or DROP; the rest is for psql");
    if (!is_one_statement(call->statement))
        return refuse(call, STK_ERR, "one statement at a time; in DDL no semicolon, even quoted");
    return STK_OK;
}

/* Sending. */

static bool presents(const struct statement *at)
{
    return at->txn->claims_count > 0 && !at->read_only;
}

/* Present the claims, which the engine has judged, for guards. A statement before this one may have
 * presented others. */
static void send_claims(const struct statement *at)
{
    struct pg_params params = {.count = 0};
    struct pg_array names, tokens;

    pg_array_start(&names, PG_BYTEA);
    pg_array_start(&tokens, PG_INT8);
    for (size_t i = 0; i < at->txn->claims_count; i++) {
        pg_array_bytes(&names, at->txn->claims[i].resource);
        pg_array_int64(&tokens, at->txn->claims[i].token);
    }
    pg_param_array(&params, &names);
    pg_param_array(&params, &tokens);
    pg_send(at->txn->pg, PG_SQL_PRESENT, &params);
    buf_free(&names.buf);
    buf_free(&tokens.buf);
}

static void send_limits(struct statement *at)
{
    struct pg_params params = {.count = 0};

    if (presents(at))
        send_claims(at);

    if (at->read_only) {
        pg_send(at->txn->pg, PG_SQL_READS, NULL);
        pg_send(at->txn->pg, PG_SQL_READ_ONLY, NULL);
    }
    pg_param_int64(&params, at->left_ms);
    pg_param_int64(&params, at->call->own_hidden);
    pg_send(at->txn->pg, PG_SQL_LIMITS, &params);
    pg_send(at->txn->pg, PG_SQL_PATH, NULL);
}

/* Have the server parse the statement behind PREPARE: it refuses what cannot be prepared, and more
 * than one statement. It does not look closer than that. */
static void send_parse(struct statement *at)
{
    struct buf text = {0};

    buf_append_text(&text, "PREPARE " PORTAL " AS ");
    buf_append_bytes(&text, at->call->statement);
    buf_append(&text, "", 1);
    pg_send_parse(at->txn->pg, text.data);
    buf_free(&text);
}

static const char *type_of(const struct sql_value *value)
{
    switch (value->type) {
    case SQL_INTEGER:
        return value->integer >= INT32_MIN && value->integer <= INT32_MAX ? "int4" : "int8";
    case SQL_FLOAT: return "float8";
    case SQL_BLOB: return "bytea";
    case SQL_TEXT:
    case SQL_NULL: break;
    }
    return "unknown";
}

/* Add the value as text that the server reads. */
static void add_param(struct pg_array *array, const struct sql_value *value)
{
    struct buf text = {0};
    char pair[2], number[PLAIN_FLOAT_SIZE];

    switch (value->type) {
    case SQL_NULL: pg_array_null(array); return;
    case SQL_TEXT: pg_array_bytes(array, value->bytes); return;
    case SQL_INTEGER: buf_printf(&text, "%lld", (long long)value->integer); break;
    case SQL_FLOAT: buf_append_text(&text, plain_float(value->real, number)); break;
    case SQL_BLOB:
        buf_append_text(&text, "\\x");
        for (size_t i = 0; i < value->bytes.len; i++) {
            bytes_to_hex((struct bytes){value->bytes.data + i, 1}, pair);
            buf_append(&text, pair, sizeof pair);
        }
        break;
    }
    pg_array_bytes(array, buf_bytes(&text));
    buf_free(&text);
}

static void send_open(struct statement *at)
{
    const struct sql_call *call = at->call;
    struct pg_params params = {.count = 0};
    struct pg_array types, values;

    pg_array_start(&types, PG_TEXT);
    pg_array_start(&values, PG_TEXT);
    for (size_t i = 0; i < call->params_count; i++) {
        pg_array_bytes(&types, bytes_of(type_of(&call->params[i])));
        add_param(&values, &call->params[i]);
    }
    pg_param_bytes(&params, bytes_of(at->how));
    pg_param_bytes(&params, call->statement);
    pg_param_array(&params, &types);
    pg_param_array(&params, &values);
    pg_send(at->txn->pg, PG_SQL_OPEN, &params);
    buf_free(&types.buf);
    buf_free(&values.buf);
}

static void send_settings(struct statement *at)
{
    pg_send(at->txn->pg, PG_SQL_RESET, NULL);
    pg_send(at->txn->pg, PG_SQL_SETTLE, NULL);
    if (is(at, DEFINE)) {
        struct pg_params params = {.count = 0};
        pg_param_bytes(&params, buf_bytes(&at->trees));
        pg_param_bytes(&params, buf_bytes(&at->names));
        pg_send(at->txn->pg, PG_SQL_GUARDED, &params);
    }
    if (at->read_only)
        pg_send(at->txn->pg, PG_SQL_READS_END, NULL);
}

/* Taking. */

static void skip_limits(struct statement *at)
{
    pg_skip(at->txn->pg, (at->read_only ? 4 : 2) + (size_t)presents(at));
}

static void take_open(struct statement *at)
{
    struct pg *pg = at->txn->pg;
    PGresult *result = pg_take(pg);

    if (result != NULL)
        at->changed = pg->pq.PQgetisnull(result, 0, 0) ? -1 : pg_value_int64(pg, result, 0, 0);
    pg->pq.PQclear(result);
}

static void take_columns(struct statement *at)
{
    struct libpq *pq = &at->txn->pg->pq;
    PGresult *result = pg_take(at->txn->pg);

    at->columns = result != NULL ? (size_t)pq->PQnfields(result) : 0;
    at->types = mem_alloc((at->columns + 1) * sizeof *at->types);
    at->values = mem_alloc((at->columns + 1) * sizeof *at->values);
    const char **names = mem_alloc((at->columns + 1) * sizeof *names);
    for (size_t i = 0; i < at->columns; i++) {
        at->types[i] = pq->PQftype(result, (int)i);
        names[i] = pq->PQfname(result, (int)i);
    }
    if (at->columns > 0 && at->call->columns != NULL)
        at->call->columns(at->call->context, names, at->columns);
    free(names);
    pq->PQclear(result);
}

/* A row: the text of a record, "(1,,\"a \"\"b\"\"\")". Quotes and backslashes are doubled inside of
 * quotes; nothing at all is null. */

/* Read the value at *text, in place, put a zero behind it, and move behind the comma or parenthesis
 * that ended it. False: it is null. */
static bool read_value(char **text, struct bytes *value)
{
    char *in = *text, *out = *text;
    bool quoted = false, is_null = *in == ',' || *in == ')';

    for (; quoted || (*in != ',' && *in != ')'); in++)
        if (*in == '"' && quoted && in[1] == '"')
            *out++ = *in++;
        else if (*in == '"')
            quoted = !quoted;
        else
            *out++ = *in == '\\' ? *++in : *in;
    *value = (struct bytes){is_null ? NULL : *text, (size_t)(out - *text)};
    *text = in + 1;
    *out = '\0';
    return !is_null;
}

/* Read bytes that are written as \x0aff. A text of another form is returned as it is. */
static struct bytes read_blob(struct bytes text, char *out)
{
    if (text.len < 2 || text.data[0] != '\\' || text.data[1] != 'x')
        return text;
    for (size_t i = 2; i + 1 < text.len; i += 2)
        out[i / 2 - 1] =
            (char)(bytes_hex_digit(text.data[i]) << 4 | bytes_hex_digit(text.data[i + 1]));
    return (struct bytes){text.data, text.len / 2 - 1};
}

static struct sql_value value_of(unsigned type, struct bytes text, char *memory)
{
    struct sql_value value = {.type = SQL_TEXT, .bytes = text};

    switch (type) {
    case OID_BOOL:
        value.type = SQL_INTEGER;
        value.integer = text.len > 0 && text.data[0] == 't';
        break;
    case OID_INT2:
    case OID_INT4:
    case OID_INT8:
    case OID_OID: value.type = bytes_to_int64(text, &value.integer) ? SQL_INTEGER : SQL_TEXT; break;
    case OID_FLOAT4:
    case OID_FLOAT8:
        value.type = SQL_FLOAT;
        value.real = plain_to_double(text.data, NULL);
        break;
    case OID_BYTEA:
        value.type = SQL_BLOB;
        value.bytes = read_blob(text, memory);
        break;
    default: break;
    }
    return value;
}

/* Hand a row to the caller; `text` is changed. False: the caller has had enough. */
static bool hand_out_row(struct statement *at, char *text)
{
    char *next = text + 1;

    for (size_t i = 0; i < at->columns; i++) {
        char *memory = next;
        struct bytes value;
        at->values[i] = (struct sql_value){.type = SQL_NULL};
        if (read_value(&next, &value))
            at->values[i] = value_of(at->types[i], value, memory);
    }
    at->rows++;
    return at->call->row == NULL || at->call->row(at->call->context, at->values, at->columns);
}

static bool take_rows(struct statement *at)
{
    struct libpq *pq = &at->txn->pg->pq;
    PGresult *result = pg_take(at->txn->pg);
    int count = result != NULL ? pq->PQntuples(result) : 0;
    bool more = true;

    for (int i = 0; i < count && more && !at->ended; i++) {
        at->ended = pq->PQgetisnull(result, i, 0);
        if (!at->ended) /* a result's memory is ours to change */
            more = hand_out_row(at, pq->PQgetvalue(result, i, 0));
    }
    pq->PQclear(result);
    return more;
}

/* Note which tables are guarded, before a definition runs: one that it drops, or takes from its
 * parent, is not guarded afterwards. */
static bool note_guarded(struct statement *at)
{
    struct pg *pg = at->txn->pg;

    pg_send(pg, PG_SQL_TREES, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        buf_append_bytes(&at->trees, pg_value_bytes(pg, result, 0, 0));
        buf_append_bytes(&at->names, pg_value_bytes(pg, result, 0, 1));
    }
    pg->pq.PQclear(result);
    return pg_end(pg);
}

/* Has a definition changed a guarded table? */
static enum stk_error take_guarded(struct statement *at)
{
    struct pg *pg = at->txn->pg;
    PGresult *result = pg_take(pg);
    bool guarded = result != NULL && pg->pq.PQntuples(result) > 0;

    if (guarded) {
        at->txn->broken = true;
        text_print(at->call->why, SQL_WHY_MAX, "%.*s is guarded: GUARD DROP it first",
                   BYTES_CUT(pg_value_bytes(pg, result, 0, 0), 128));
    }
    pg->pq.PQclear(result);
    return guarded ? STK_GUARDED : STK_OK;
}

/* The life of a statement. */

/* End the sending of a trip: it may take what is left of the statement's time, and a trip's. */
static void end_sending(struct statement *at)
{
    struct pg *pg = at->txn->pg;
    int64_t left_ms = at->left_ms < INT32_MAX / 2 ? at->left_ms : INT32_MAX / 2;

    pg_sync_within(pg, pg->timeout_ms + (int)left_ms);
}

/* One trip: open the statement (the first time), and hand out a page of rows. */
static enum stk_error take_page(struct statement *at, bool first)
{
    struct pg *pg = at->txn->pg;
    int64_t begun_ms = clock_now_ms(&clock_monotonic);
    bool parses = first && is(at, PREPARED);

    at->left_ms = at->call->time_limit_ms - at->txn->sql_ms;
    if (at->left_ms <= 0)
        return refuse_late(at);
    send_limits(at);
    if (parses)
        send_parse(at);
    if (first) {
        send_open(at);
        pg_send_describe(pg, PORTAL);
    }
    pg_send(pg, PG_SQL_FETCH, NULL);
    send_settings(at);
    end_sending(at);
    skip_limits(at);
    if (parses)
        pg_skip(pg, 1);
    if (first) {
        take_open(at);
        take_columns(at);
    }
    bool more = take_rows(at);
    pg_skip(pg, 2);
    enum stk_error error = is(at, DEFINE) ? take_guarded(at) : STK_OK;
    bool good = pg_end(pg);
    at->txn->sql_ms += clock_now_ms(&clock_monotonic) - begun_ms;
    at->left_ms = at->call->time_limit_ms - at->txn->sql_ms;
    if (!good)
        return judge_failure(at);
    if (more || error != STK_OK)
        return error;
    at->txn->broken = at->txn->must_drop = true; /* it was stopped before its end */
    if (at->call->why[0] == '\0')
        text_print(at->call->why, SQL_WHY_MAX, "the statement gives too many rows");
    return STK_ERR;
}

static enum stk_error run(struct statement *at)
{
    struct pg_txn *txn = at->txn;
    enum stk_error error = STK_OK;

    at->read_only = txn->kind == PG_OWN && at->call->right == SQL_MAY_READ;
    txn->wrote |= txn->kind == PG_OWN && !at->read_only;
    txn->needs_reset = true;
    if (is(at, DEFINE) && !note_guarded(at))
        return pg_stop(txn, PG_FAILED);
    for (bool first = true; error == STK_OK && !at->ended; first = false)
        error = take_page(at, first);
    if (error == STK_OK)
        at->call->changes = at->changed >= 0                              ? at->changed
                            : sql_kind(at->call->statement) == SQL_CHANGE ? at->rows
                                                                          : 0;
    return error;
}

enum stk_error pg_sql(struct store_txn *base, struct sql_call *call)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct statement at = {.txn = txn, .call = call};

    call->changes = call->last_insert_rowid = 0;
    call->why[0] = '\0';
    enum stk_error error = judge_text(&at);
    if (error != STK_OK)
        return error;
    if (txn->sql_state == SQL_UNTRIED)
        txn->sql_state = SQL_WANTED;
    if (!pg_may_use_tables(txn))
        return STK_STORE;
    if (txn->sql_state == SQL_WANTED)
        return pg_stop(txn, txn->kind == PG_READS ? PG_MISSING : PG_NEEDS_OWN);
    if (txn->sql_state == SQL_MISSING)
        return refuse(call, STK_ERR, txn->sql_why);
    error = run(&at);
    free(at.types);
    free(at.values);
    buf_free(&at.trees);
    buf_free(&at.names);
    return error;
}

void pg_present(struct store_txn *base, const struct claim *claims, size_t count)
{
    struct pg_txn *txn = pg_txn_of(base);

    txn->claims = claims;
    txn->claims_count = count;
}

void pg_sql_make_ready(struct pg_txn *txn)
{
    struct pg *pg = txn->pg;

    if (txn->sql_state == SQL_MISSING)
        txn->sql_state = SQL_UNTRIED; /* somebody may have put it right meanwhile */
    if (txn->sql_state != SQL_WANTED)
        return;
    check(!txn->begun);
    pg_send(pg, PG_SQL_SET_UP, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool ready = result != NULL && pg->pq.PQgetisnull(result, 0, 0);
    if (result != NULL && !ready)
        text_print(txn->sql_why, SQL_WHY_MAX, "%.*s",
                   BYTES_CUT(pg_value_bytes(pg, result, 0, 0), 255));
    pg->pq.PQclear(result);
    if (!pg_end(pg))
        text_print(txn->sql_why, SQL_WHY_MAX, "%s", pg->why);
    txn->sql_state = ready ? SQL_READY : SQL_MISSING;
}
