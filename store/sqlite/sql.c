/* SPDX-License-Identifier: Apache-2.0 */
/* One statement of a user, from its text to its rows.
 *
 *   found, or compiled ─▶ judged ─▶ bound ─▶ stepped ─▶ reset, kept for the next time
 *        the authorizer ──┘            progress: time and memory
 *
 * It fails for reasons of its own, which the user is told, or because the store fails. SQLite may
 * end the whole transaction with it (OR ROLLBACK; a change that was interrupted): what comes next
 * in the operation then fails, too (transaction_is_gone). Limits that SQLite has per connection,
 * and the authorizer's verdicts, hold between enter() and leave(), never for Stockade's own
 * statements.
 */
#include "store/sqlite/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "store/sql_text.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/sql_memory.h"

#define SQL_TOO_MUCH_MEMORY "the statement was stopped: it needs more than 128 MiB of memory"

#define SQL_LENGTH_MAX        ((16 << 20) + (64 << 10)) /* bytes of a row: 16 MiB and keys */
#define SQL_LIKE_PATTERN_MAX  256 /* bytes: matching takes text times pattern */
#define SQL_PARAMS_MAX        32766
#define SQL_TRIGGER_DEPTH_MAX 100
/* Of memory, bytes: beyond the first a statement is interrupted, beyond the second SQLite is told
 * that there is none, which may cost the transaction. */
#define SQL_MEMORY_MAX      (128 << 20)
#define SQL_MEMORY_HARD_MAX (256 << 20)

#define SQL_KEPT_MAX           64          /* statements */
#define SQL_KEPT_STATEMENT_MAX (16 << 10)  /* bytes of text of one */
#define SQL_KEPT_MEMORY_MAX    (256 << 10) /* bytes that SQLite needs for one */

enum { PROGRESS_STEPS = 100 }; /* of SQLite's machine: some microseconds, or one long function */

struct kept_statement {
    char *text; /* owned; NULL: the place is free */
    size_t len;
    enum sql_right right; /* the authorizer has allowed it for these, and is not asked again */
    bool own_hidden;
    uint64_t used; /* when: larger is later */
    sqlite3_stmt *stmt;
};

struct sql {
    struct sql_verdict verdict; /* first: the authorizer gets a pointer to it */
    struct transaction *txn;    /* whose part it is */
    sqlite3 *db;
    struct kept_statement kept[SQL_KEPT_MAX];
    uint64_t uses;
    struct sql_value *values; /* of a row; room for values_max */
    size_t values_max;

    /* The call under way. */
    bool defines;     /* it is DDL */
    bool over_memory; /* it was interrupted for the memory it takes */
    int64_t limit_ms, begun_ms, deadline_ms;
};

/* Kept statements: by their text and the caller's rights, the least recently used one makes way.
 * There are so few that looking at each costs less than the statement's first row. SQLite compiles
 * a kept statement anew by itself where the schema has changed, and calls the authorizer again. */

static void drop(struct kept_statement *kept)
{
    sqlite3_finalize(kept->stmt);
    free(kept->text);
    *kept = (struct kept_statement){.text = NULL};
}

/* Return the prepared statement of this text, if it was allowed for the same rights, or NULL. */
static sqlite3_stmt *find_kept(struct sql *sql, const struct sql_call *call)
{
    struct bytes text = call->statement;

    for (size_t i = 0; i < SQL_KEPT_MAX; i++) {
        struct kept_statement *kept = &sql->kept[i];
        if (kept->text == NULL || kept->len != text.len || kept->right != call->right ||
            kept->own_hidden != call->own_hidden || memcmp(kept->text, text.data, text.len) != 0)
            continue;
        kept->used = ++sql->uses;
        return kept->stmt;
    }
    return NULL;
}

/* Keep the statement, which is reset, for later, or finalize it. */
static void keep(struct sql *sql, const struct sql_call *call, sqlite3_stmt *stmt)
{
    struct kept_statement *victim = &sql->kept[0];
    struct bytes text = call->statement;

    if (text.len > SQL_KEPT_STATEMENT_MAX ||
        sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_MEMUSED, 0) > SQL_KEPT_MEMORY_MAX) {
        sqlite3_finalize(stmt);
        return;
    }
    for (size_t i = 1; i < SQL_KEPT_MAX && victim->text != NULL; i++)
        if (sql->kept[i].text == NULL || sql->kept[i].used < victim->used)
            victim = &sql->kept[i];
    drop(victim);
    victim->text = mem_alloc(text.len);
    memcpy(victim->text, text.data, text.len);
    victim->len = text.len;
    victim->right = call->right;
    victim->own_hidden = call->own_hidden;
    victim->used = ++sql->uses;
    victim->stmt = stmt;
}

static void drop_all(struct sql *sql)
{
    for (size_t i = 0; i < SQL_KEPT_MAX; i++)
        drop(&sql->kept[i]);
}

/* Setting up. */

/* Everything that is dangerous and can be switched off, is. */
static void harden(sqlite3 *db)
{
    static const struct {
        int what, value;
    } limits[] = {
        {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, SQL_LIKE_PATTERN_MAX},
        {SQLITE_LIMIT_VARIABLE_NUMBER, SQL_PARAMS_MAX},
        {SQLITE_LIMIT_TRIGGER_DEPTH, SQL_TRIGGER_DEPTH_MAX},
        {SQLITE_LIMIT_ATTACHED, 0},
        {SQLITE_LIMIT_WORKER_THREADS, 0},
    };

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        sqlite3_limit(db, limits[i].what, limits[i].value);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
}

struct sql *sql_new(struct transaction *txn)
{
    struct sql *sql = mem_zalloc(sizeof *sql);

    sql->verdict.txn = sql->txn = txn;
    sql->db = txn->db;
    harden(sql->db);
    if (sql_functions_add(sql->db) != SQLITE_OK) {
        free(sql);
        return NULL;
    }
    sqlite3_set_authorizer(sql->db, sql_authorize, &sql->verdict);
    return sql;
}

void sql_free(struct sql *sql)
{
    if (sql == NULL)
        return;
    drop_all(sql);
    sqlite3_set_authorizer(sql->db, NULL, NULL);
    free(sql->values);
    free(sql);
}

/* Called while SQLite works. Not 0: enough. */
static int progress(void *context)
{
    struct sql *sql = context;

    sql->over_memory = sql_memory_exceeds(SQL_MEMORY_MAX);
    return sql->over_memory || clock_now_ms(&clock_monotonic) >= sql->deadline_ms;
}

/* Between these two, what SQLite runs is the user's. */
static void enter(struct sql *sql, const struct sql_call *call, enum sql_kind kind)
{
    sql->verdict.right = call->right;
    sql->verdict.own_hidden = call->own_hidden;
    sql->verdict.names_guard = sql_text_has(call->statement, SQL_GUARD_NAME);
    sql->defines = kind == SQL_DEFINITION;
    sql->over_memory = false;
    sql->limit_ms = call->time_limit_ms;
    sql->begun_ms = clock_now_ms(&clock_monotonic);
    sql->deadline_ms = sql->begun_ms + call->time_limit_ms - sql->txn->sql_ms;
    sqlite3_limit(sql->db, SQLITE_LIMIT_LENGTH, SQL_LENGTH_MAX);
    sqlite3_progress_handler(sql->db, PROGRESS_STEPS, progress, sql);
    sql_memory_begin(SQL_MEMORY_HARD_MAX);
    sql->verdict.active = true;
}

static void leave(struct sql *sql)
{
    sql->verdict.active = false;
    sql->txn->sql_ms += clock_now_ms(&clock_monotonic) - sql->begun_ms;
    sql_memory_end();
    sqlite3_progress_handler(sql->db, 0, NULL, NULL);
    sqlite3_limit(sql->db, SQLITE_LIMIT_LENGTH, INT32_MAX);
}

/* SQLITE_FULL, for want of numbers rather than room: a table's AUTOINCREMENT is at its end. */
static bool is_numbered_out(struct sql *sql)
{
    int64_t found = 0;

    return db_int64(sql->db,
                    "SELECT EXISTS(SELECT 1 FROM sqlite_sequence WHERE seq = 9223372036854775807)",
                    &found) == SQLITE_OK &&
           found != 0;
}

/* After SQLite has said no: the user's error, or the store's? */
static enum stk_error judge_failure(struct sql *sql, int code)
{
    /* What the functions of guards say (guard_function.c). */
    static const struct {
        const char *begins;
        enum stk_error error;
    } refusals[] = {
        {"GUARDED ", STK_GUARDED},
        {"NOTOKEN the statement assigns no token", STK_NOTOKEN},
        {"STALE token ", STK_STALE},
        {"UNKNOWN token ", STK_UNKNOWN},
    };
    const char *text = sqlite3_errmsg(sql->db);

    if (sql->verdict.refusal != STK_OK)
        return sql->verdict.refusal;
    switch (code) {
    case SQLITE_NOMEM:
        if (!sql_memory_exhausted())
            return transaction_fail(sql->txn);
        return sql_refuse(&sql->verdict, STK_ERR, SQL_TOO_MUCH_MEMORY);
    case SQLITE_INTERRUPT:
        if (sql->over_memory)
            return sql_refuse(&sql->verdict, STK_ERR, SQL_TOO_MUCH_MEMORY);
        return sql_refuse(&sql->verdict, STK_ERR,
                          "the statement was stopped: it took more than %lld ms",
                          (long long)sql->limit_ms);
    case SQLITE_FULL:
        (void)transaction_fail(sql->txn);
        if (!is_numbered_out(sql))
            return STK_STORE;
        sql->txn->failed = false;
        return sql_refuse(&sql->verdict, STK_ERR, "AUTOINCREMENT has no number left");
    case SQLITE_BUSY:
    case SQLITE_CANTOPEN:
    case SQLITE_CORRUPT:
    case SQLITE_IOERR:
    case SQLITE_NOTADB:
    case SQLITE_PERM:
    case SQLITE_PROTOCOL:
    case SQLITE_READONLY: return transaction_fail(sql->txn);
    default: break;
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (strncmp(text, refusals[i].begins, strlen(refusals[i].begins)) == 0)
            return sql_refuse(&sql->verdict, refusals[i].error, "%s", strchr(text, ' ') + 1);
    return sql_refuse(&sql->verdict, STK_ERR, "%s", text);
}

static enum stk_error compile(struct sql *sql, const struct sql_call *call, sqlite3_stmt **stmt)
{
    struct bytes text = call->statement;
    unsigned flags = text.len <= SQL_KEPT_STATEMENT_MAX ? SQLITE_PREPARE_PERSISTENT : 0;
    const char *rest = NULL, *end = text.data + text.len;
    int code = sqlite3_prepare_v3(sql->db, text.data, (int)text.len, flags, stmt, &rest);

    if (code != SQLITE_OK)
        return judge_failure(sql, code);
    if (*stmt == NULL)
        return sql_refuse(&sql->verdict, STK_ERR, SQL_NO_STATEMENT);
    if (!sql_text_is_blank((struct bytes){rest, (size_t)(end - rest)}))
        return sql_refuse(&sql->verdict, STK_ERR, "one statement at a time");
    return STK_OK;
}

/* What the authorizer cannot see: whether it changes anything, and how many parameters it has. */
static enum stk_error judge(struct sql *sql, const struct sql_call *call, sqlite3_stmt *stmt,
                            enum sql_kind kind)
{
    size_t params = (size_t)sqlite3_bind_parameter_count(stmt);

    if (kind == SQL_OTHER)
        return sql_refuse(&sql->verdict, STK_NOPERM, "this statement is out of SQL's reach");
    if (call->right == SQL_MAY_READ && !sqlite3_stmt_readonly(stmt) &&
        sqlite3_stmt_isexplain(stmt) == 0)
        return sql_refuse(&sql->verdict, STK_NOTOKEN, SQL_NO_TOKEN);
    if (params != call->params_count)
        return sql_refuse(&sql->verdict, STK_ERR, "the statement takes %zu parameters, not %zu",
                          params, call->params_count);
    return STK_OK;
}

static enum stk_error bind(struct sql *sql, const struct sql_call *call, sqlite3_stmt *stmt)
{
    for (size_t i = 0; i < call->params_count; i++) {
        const struct sql_value *value = &call->params[i];
        const char *data = value->bytes.len > 0 ? value->bytes.data : "";
        int at = (int)i + 1, code = SQLITE_OK;

        switch (value->type) {
        case SQL_NULL: break; /* as it is */
        case SQL_INTEGER: code = sqlite3_bind_int64(stmt, at, value->integer); break;
        case SQL_FLOAT: code = sqlite3_bind_double(stmt, at, value->real); break;
        case SQL_TEXT:
            code =
                sqlite3_bind_text64(stmt, at, data, value->bytes.len, SQLITE_STATIC, SQLITE_UTF8);
            break;
        case SQL_BLOB:
            code = sqlite3_bind_blob64(stmt, at, data, value->bytes.len, SQLITE_STATIC);
            break;
        }
        if (code != SQLITE_OK)
            return judge_failure(sql, code);
    }
    return STK_OK;
}

static void announce_columns(const struct sql_call *call, sqlite3_stmt *stmt)
{
    size_t count = (size_t)sqlite3_column_count(stmt);

    if (count == 0 || call->columns == NULL)
        return;
    const char **names = mem_alloc(count * sizeof *names);
    for (size_t i = 0; i < count; i++) {
        names[i] = sqlite3_column_name(stmt, (int)i);
        if (names[i] == NULL) /* no memory */
            names[i] = "";
    }
    call->columns(call->context, names, count);
    free(names);
}

static struct sql_value value_at(sqlite3_stmt *stmt, int at)
{
    struct sql_value value = {.type = SQL_NULL};

    switch (sqlite3_column_type(stmt, at)) {
    case SQLITE_INTEGER:
        value.type = SQL_INTEGER;
        value.integer = sqlite3_column_int64(stmt, at);
        return value;
    case SQLITE_FLOAT:
        value.type = SQL_FLOAT;
        value.real = sqlite3_column_double(stmt, at);
        return value;
    case SQLITE_TEXT:
        value.type = SQL_TEXT;
        value.bytes.data = (const char *)sqlite3_column_text(stmt, at);
        break;
    case SQLITE_BLOB:
        value.type = SQL_BLOB;
        value.bytes.data = sqlite3_column_blob(stmt, at);
        break;
    default: return value;
    }
    if (value.bytes.data != NULL) /* an empty blob, or no memory for a copy */
        value.bytes.len = (size_t)sqlite3_column_bytes(stmt, at);
    return value;
}

/* False: the caller has had enough. */
static bool hand_out_row(struct sql *sql, const struct sql_call *call, sqlite3_stmt *stmt)
{
    size_t count = (size_t)sqlite3_column_count(stmt);

    if (count > sql->values_max) {
        sql->values = mem_realloc(sql->values, count * sizeof *sql->values);
        sql->values_max = count;
    }
    for (size_t i = 0; i < count; i++)
        sql->values[i] = value_at(stmt, (int)i);
    if (call->row == NULL)
        return true;
    sql->txn->iterating = true;
    bool more = call->row(call->context, sql->values, count);
    sql->txn->iterating = false;
    return more;
}

static enum stk_error step(struct sql *sql, struct sql_call *call, sqlite3_stmt *stmt)
{
    int code = sqlite3_step(stmt);

    if (code == SQLITE_ROW || code == SQLITE_DONE)
        announce_columns(call, stmt);
    while (code == SQLITE_ROW) {
        bool more = hand_out_row(sql, call, stmt);
        if (sql_memory_exhausted())
            return judge_failure(sql, SQLITE_NOMEM);
        if (!more) {
            sql->verdict.refusal = STK_ERR;
            if (call->why[0] == '\0')
                snprintf(call->why, SQL_WHY_MAX, "the statement gives too many rows");
            return STK_ERR;
        }
        code = sqlite3_step(stmt);
    }
    return code == SQLITE_DONE ? STK_OK : judge_failure(sql, code);
}

/* Bind and step a statement that may run. */
static enum stk_error execute(struct sql *sql, struct sql_call *call, sqlite3_stmt *stmt)
{
    struct transaction *txn = sql->txn;
    bool changes = !sqlite3_stmt_readonly(stmt) && sqlite3_stmt_isexplain(stmt) == 0;
    enum stk_error error = bind(sql, call, stmt);

    if (error != STK_OK)
        return error;
    txn->touched |= sql->defines;
    /* last_insert_rowid() means the operation's own: Stockade itself inserts rows in between. */
    sqlite3_set_last_insert_rowid(sql->db, txn->last_rowid);
    error = step(sql, call, stmt);
    if (error != STK_OK)
        return error;
    if (changes && !sql->defines) {
        call->changes = sqlite3_changes64(sql->db);
        txn->last_rowid = sqlite3_last_insert_rowid(sql->db);
    }
    call->last_insert_rowid = txn->last_rowid;
    return STK_OK;
}

static enum stk_error run(struct sql *sql, struct sql_call *call, enum sql_kind kind)
{
    sqlite3_stmt *stmt = find_kept(sql, call);
    bool kept = stmt != NULL;
    enum stk_error error = kept ? STK_OK : compile(sql, call, &stmt);

    if (error == STK_OK)
        error = judge(sql, call, stmt, kind);
    if (error == STK_OK)
        error = execute(sql, call, stmt);
    if (stmt == NULL)
        return error;
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    if (kept)
        return error;
    if (error == STK_OK && !sql->defines)
        keep(sql, call, stmt);
    else
        sqlite3_finalize(stmt);
    return error;
}

/* A digest of Stockade's objects, as the schema has them. */
static enum stk_error digest_own(struct sql *sql, uint64_t *digest)
{
    sqlite3_stmt *stmt;

    *digest = 0;
    if (sqlite3_prepare_v2(sql->db,
                           "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || ifnull(sql, '')"
                           " FROM main.sqlite_schema WHERE name LIKE 'stockade^_%' ESCAPE '^'"
                           " OR tbl_name LIKE 'stockade^_%' ESCAPE '^' ORDER BY name",
                           -1, &stmt, NULL) != SQLITE_OK)
        return transaction_fail(sql->txn);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const void *text = sqlite3_column_text(stmt, 0);
        *digest = XXH3_64bits_withSeed(text, (size_t)sqlite3_column_bytes(stmt, 0), *digest);
    }
    return sqlite3_finalize(stmt) == SQLITE_OK ? STK_OK : transaction_fail(sql->txn);
}

/* DDL. The authorizer is not told everything (what a table is renamed to): what counts is that
 * Stockade's own objects are what they were. */
static enum stk_error run_definition(struct sql *sql, struct sql_call *call)
{
    uint64_t before, after;
    enum stk_error error = digest_own(sql, &before);

    if (error != STK_OK)
        return error;
    enter(sql, call, SQL_DEFINITION);
    error = run(sql, call, SQL_DEFINITION);
    leave(sql);
    if (error == STK_OK)
        error = digest_own(sql, &after);
    if (error != STK_OK)
        return error;
    if (before != after)
        return sql_refuse(&sql->verdict, STK_NOPERM, "this would change what is Stockade's own");
    return guards_check(sql->txn, GUARDS_OWN);
}

enum stk_error sql_run(struct store_txn *base, struct sql_call *call)
{
    struct transaction *txn = transaction_of(base);
    struct sql *sql = txn->sql;

    check(!txn->iterating);
    transaction_settle(txn);
    call->changes = call->last_insert_rowid = 0;
    call->why[0] = '\0';
    sql->verdict.why = call->why;
    sql->verdict.refusal = STK_OK;
    if (transaction_is_gone(txn))
        return sql_refuse(&sql->verdict, STK_ERR, "the transaction was rolled back");
    if (call->statement.len == 0)
        return sql_refuse(&sql->verdict, STK_ERR, SQL_NO_STATEMENT);
    const char *refusal = sql_text_refuses(call->statement);
    if (refusal != NULL)
        return sql_refuse(&sql->verdict, STK_ERR, "%s", refusal);
    enum sql_kind kind = sql_kind(call->statement);
    if (kind == SQL_DEFINITION && call->right == SQL_MAY_DEFINE)
        return run_definition(sql, call);
    if (kind == SQL_DEFINITION)
        return sql_refuse(&sql->verdict, STK_NOPERM, SQL_NOT_DDL);
    /* SQLite compiles by the schema that this connection has read, and sees that another program
     * has changed it only where it runs something. */
    if (transaction_floor(txn) != STK_OK)
        return STK_STORE;
    enter(sql, call, kind);
    enum stk_error error = run(sql, call, kind);
    leave(sql);
    return error;
}
