/* SPDX-License-Identifier: Apache-2.0 */
/* What a user's statement may touch. When SQLite compiles a statement, it calls the authorizer for
 * each table, column, function and object in it, also for those inside views and triggers, and says
 * which of these it is inside of (`inside`: the innermost). There it gives the name of a WITH query
 * in just the same way, so a name alone proves nothing: what may be read inside one of Stockade's
 * own views is listed to the column. Inside a guard's triggers more is allowed, so whoever has
 * their name in a statement's text, where a WITH query may bear it, is not taken for one. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/plain.h"
#include "store/sql_text.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/sql.h"

#define OWN       "stockade_"
#define OWN_GUARD SQL_GUARD_NAME

/* The public views, and what they read; and what a guard's triggers read. */
static const struct {
    const char *inside, *table, *columns; /* columns between spaces */
} readable[] = {
    {"stockade_fences", "stockade_resource", " name token state owner holds ttl_ms "},
    {"stockade_values", "stockade_string", " id value "},
    {"stockade_values", "stockade_resource", " id name "},
    {"stockade_fields", "stockade_hash", " id field value "},
    {"stockade_fields", "stockade_resource", " id name "},
    {"stockade_receipts", "stockade_receipt", " resource id token written_ms reply "},
    {"stockade_receipts", "stockade_resource", " id name "},
    {"stockade_guards", "stockade_guard", " name key prefix "},
    {"stockade_guards", "stockade_token_column", " name token "},
    {OWN_GUARD, "stockade_resource", " name token state "},
    {OWN_GUARD, "stockade_meta", " key value "},
};

enum { READABLE = sizeof readable / sizeof *readable };

static bool begins(const char *name, const char *with)
{
    return name != NULL && plain_begins(name, with);
}

static bool is(const char *name, const char *other)
{
    return name != NULL && plain_equal(name, other);
}

static bool is_own(const char *name)
{
    return begins(name, OWN) || begins(name, "sqlite_autoindex_" OWN);
}

static bool is_public_view(const char *name)
{
    for (size_t i = 0; i < READABLE; i++)
        if (is(name, readable[i].inside))
            return true;
    return false;
}

static bool has_column(const char *columns, const char *column)
{
    char word[32];

    snprintf(word, sizeof word, " %s ", column);
    return plain_contains(columns, word);
}

/* Is what is being compiled a trigger of a guard's? A user's statement may call a query of its own
 * by such a name, but then has it in its text. */
static bool is_in_guard(const struct sql_verdict *verdict, const char *inside)
{
    return !verdict->names_guard && begins(inside, OWN_GUARD);
}

/* An empty `column`: rows are only counted. SQLite does not say inside what, then. */
static bool may_read(const struct sql_verdict *verdict, const char *inside, const char *table,
                     const char *column)
{
    for (size_t i = 0; i < READABLE; i++) {
        bool guard = strcmp(readable[i].inside, OWN_GUARD) == 0;
        if (!is(table, readable[i].table))
            continue;
        if (column[0] == '\0' && !guard)
            return true;
        if ((guard ? is_in_guard(verdict, inside) : is(inside, readable[i].inside)) &&
            has_column(readable[i].columns, column))
            return true;
    }
    return false;
}

enum stk_error sql_refuse(struct sql_verdict *verdict, enum stk_error error, const char *format,
                          ...)
{
    va_list args;

    if (verdict->refusal != STK_OK)
        return verdict->refusal;
    verdict->refusal = error;
    va_start(args, format);
    vsnprintf(verdict->why, SQL_WHY_MAX, format, args);
    va_end(args);
    return error;
}

static int deny(struct sql_verdict *verdict, enum stk_error error, const char *format,
                const char *name)
{
    char shown[64];

    snprintf(shown, sizeof shown, "%s", name != NULL ? name : "");
    sql_refuse(verdict, error, format, shown);
    return SQLITE_DENY;
}

static int deny_own(struct sql_verdict *verdict, const char *name)
{
    return deny(verdict, STK_NOPERM, "%s is Stockade's own: out of SQL's reach", name);
}

static int read_column(struct sql_verdict *verdict, const char *table, const char *column,
                       const char *inside)
{
    /* Tables that SQLite makes up: its pragmas, its inside, other clients' statements. */
    static const char *const hidden[] = {
        "sqlite_stmt", "sqlite_dbpage", "sqlite_dbdata", "sqlite_dbptr",
        "dbstat",      "bytecode",      "tables_used",   NULL};

    if (is_own(table) && verdict->names_guard && begins(inside, OWN_GUARD))
        return deny(verdict, STK_NOPERM,
                    "%s is out of reach of a statement with " OWN_GUARD
                    " in its text: send that as a parameter",
                    table);
    if (is_own(table) && !is_public_view(table) && !may_read(verdict, inside, table, column))
        return deny_own(verdict, table);
    if (is_own(table) && verdict->own_hidden && !is_in_guard(verdict, inside))
        return deny(verdict, STK_NOPERM, "%s names all resources: to read it takes %%R~*", table);
    for (size_t i = 0; hidden[i] != NULL; i++)
        if (is(table, hidden[i]))
            return deny(verdict, STK_NOPERM, "%s is out of SQL's reach", table);
    if (begins(table, "pragma_"))
        return deny(verdict, STK_NOPERM, "PRAGMA is out of SQL's reach, %s too", table);
    return SQLITE_OK;
}

static int change_rows(struct sql_verdict *verdict, int action, const char *table)
{
    /* DDL changes the schema's tables; that nothing else does, SQLite sees to. An UPDATE of them
     * shows even in a query that uses json_each for the first time. */
    if (begins(table, "sqlite_")) {
        bool schema = is(table, "sqlite_master") || is(table, "sqlite_schema");
        if (verdict->right == SQL_MAY_DEFINE || (schema && action == SQLITE_UPDATE))
            return SQLITE_OK;
        return schema ? deny(verdict, STK_NOPERM, SQL_NOT_DDL "%s", "")
                      : deny(verdict, STK_NOPERM, "%s is out of SQL's reach", table);
    }
    if (is_own(table))
        return deny_own(verdict, table);
    const char *flaw = guards_flaw(verdict->txn->guards, table);
    if (flaw == NULL)
        return SQLITE_OK;
    sql_refuse(
        verdict, STK_GUARDED,
        "the guard of %.64s is broken: %s; until GUARD CREATE has restored it, nobody writes",
        table, flaw);
    return SQLITE_DENY;
}

/* DDL: CREATE, DROP and ALTER of `name`, on `table`. */
static int define(struct sql_verdict *verdict, const char *name, const char *table,
                  bool guards_mind)
{
    if (verdict->right != SQL_MAY_DEFINE)
        return deny(verdict, STK_NOPERM, SQL_NOT_DDL "%s", "");
    if (is_own(name))
        return deny_own(verdict, name);
    if (is_own(table))
        return deny_own(verdict, table);
    if (guards_mind && guards_has(verdict->txn->guards, table))
        return deny(verdict, STK_GUARDED, "%s is guarded: GUARD DROP it first", table);
    return SQLITE_OK;
}

/* REINDEX and ANALYZE go through all tables: not through Stockade's. */
static int maintain(struct sql_verdict *verdict, const char *name)
{
    int code = define(verdict, NULL, NULL, false);
    return code == SQLITE_OK && is_own(name) ? SQLITE_IGNORE : code;
}

static int call_function(struct sql_verdict *verdict, const char *name, const char *inside)
{
    /* Files, pointers, the process's log; and json_patch, which takes the product of its sizes. */
    static const char *const hidden[] = {"load_extension", "fts3_tokenizer", "sqlite_log",
                                         "json_patch",     "jsonb_patch",    "readfile",
                                         "writefile",      "edit",           NULL};

    for (size_t i = 0; hidden[i] != NULL; i++)
        if (is(name, hidden[i]))
            return deny(verdict, STK_NOPERM, "%s() is out of SQL's reach", name);
    return is_own(name) && !is_in_guard(verdict, inside) ? deny_own(verdict, name) : SQLITE_OK;
}

/* Is it one of those that SQLite reports in this way for temporary objects, too? */
static bool is_definition(int action)
{
    return action == SQLITE_CREATE_TABLE || action == SQLITE_CREATE_VIEW ||
           action == SQLITE_CREATE_INDEX || action == SQLITE_CREATE_TRIGGER;
}

int sql_authorize(void *context, int action, const char *a, const char *b, const char *file,
                  const char *inside)
{
    struct sql_verdict *verdict = context;

    if (!verdict->active)
        return SQLITE_OK;
    if (is_definition(action) && is(file, "temp"))
        action = SQLITE_CREATE_TEMP_TABLE;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_READ: return read_column(verdict, a, b, inside);
    case SQLITE_FUNCTION: return call_function(verdict, b, inside);
    case SQLITE_INSERT:
    case SQLITE_UPDATE:
    case SQLITE_DELETE: return change_rows(verdict, action, a);
    case SQLITE_CREATE_VIEW:
        /* Whoever uses it does not have its text in the statement's. */
        return verdict->names_guard ? deny_own(verdict, OWN_GUARD)
                                    : define(verdict, a, NULL, false);
    case SQLITE_CREATE_TABLE:
    case SQLITE_DROP_VIEW: return define(verdict, a, NULL, false);
    case SQLITE_CREATE_INDEX:
    case SQLITE_DROP_INDEX:
    case SQLITE_DROP_TRIGGER: return define(verdict, a, b, false);
    case SQLITE_CREATE_TRIGGER:
        return verdict->names_guard ? deny_own(verdict, OWN_GUARD) : define(verdict, a, b, true);
    case SQLITE_DROP_TABLE: return define(verdict, a, a, true);
    case SQLITE_ALTER_TABLE: return define(verdict, NULL, b, true);
    case SQLITE_REINDEX:
    case SQLITE_ANALYZE: return maintain(verdict, a);
    case SQLITE_PRAGMA: return deny(verdict, STK_NOPERM, "PRAGMA is out of SQL's reach: %s", a);
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
        return deny(verdict, STK_NOPERM, "other files are out of SQL's reach%s", "");
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
        return deny(verdict, STK_NOPERM, "transactions are Stockade's: use MULTI and EXEC%s", "");
    case SQLITE_CREATE_VTABLE:
    case SQLITE_DROP_VTABLE:
        return deny(verdict, STK_NOPERM, "virtual tables are out of SQL's reach: %s", a);
    case SQLITE_CREATE_TEMP_INDEX:
    case SQLITE_CREATE_TEMP_TABLE:
    case SQLITE_CREATE_TEMP_TRIGGER:
    case SQLITE_CREATE_TEMP_VIEW:
        return deny(verdict, STK_NOPERM, "there are no temporary objects here: %s", a);
    default: return deny(verdict, STK_NOPERM, "this statement is out of SQL's reach%s", "");
    }
}
