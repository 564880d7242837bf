/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade check` of a store in PostgreSQL, in one snapshot: whether the schema's objects are
 * there as they were made, and the rows of our own tables against each other. (Pages and indexes
 * are PostgreSQL's own business: pg_amcheck.) Damage that keeps one question from being answered
 * is a finding of its own; the others are still asked. A setting that does no damage, but endangers
 * what Stockade promises, is a warning. */
#include <stdio.h>
#include <string.h>

#include "store/check.h"
#include "store/postgresql/pg.h"
#include "store/postgresql/schema.h"
#include "store/transfer.h"

enum { TIMEOUT_MS = 10 * 60 * 1000 }; /* of one question */

struct check {
    struct check_call *call;
    struct pg pg;
};

/* Each rule is SQL that finds where something that must hold does not. It gives a row for every
 * such place: what it is about (a name or an id; NULL: nothing in particular), and what is wrong.
 */
static const struct rule {
    const char *kind, *sql;
} rules[] = {
    {"schema", "SELECT NULL::bytea, what FROM (" PG_SCHEMA_CHANGES ") AS c(what, remedy, harms)"},
    {"schema", "SELECT NULL::bytea, 'stockade.meta has ' || count(*) || ' rows, not 1'"
               " FROM stockade.meta HAVING count(*) <> 1"},
    {"schema", "SELECT NULL::bytea, 'stockade.meta has no usable session: ' || session"
               " FROM stockade.meta WHERE session < 0"},
    {"schema", "SELECT NULL::bytea, 'stockade.meta has no usable floor: ' || floor"
               " FROM stockade.meta WHERE floor NOT BETWEEN 0 AND " CHECK_TOKEN_MAX},
    {"schema", "SELECT NULL::bytea, 'the head of audit ' || quote_literal(chain) || ' is line '"
               " || lines || ', ' || quote_literal(hash) FROM stockade.audit"
               " WHERE lines < 1 OR length(chain) <> 32 OR length(hash) <> 64"},
    {"schema", "SELECT NULL::bytea, count(*) || ' marks of session ' || session"
               " || ', which has not been' FROM stockade.mark WHERE session NOT BETWEEN 1 AND"
               " (SELECT session FROM stockade.meta) GROUP BY session"},
    {"fence", "SELECT id, 'its name is of ' || octet_length(name) || ' bytes'"
              " FROM stockade.resource WHERE octet_length(name) NOT BETWEEN 1 AND 512"},
    {"fence", "SELECT name, count(*) || ' resources have this name' FROM stockade.resource"
              " GROUP BY name HAVING count(*) > 1"},
    {"fence", "SELECT name, 'its id is ' || id || ', which was not given out'"
              " FROM stockade.resource, stockade.resource_id"
              " WHERE id < 1 OR id > last_value + 999"},
    {"fence", "SELECT name, 'its token is ' || token || ', not one of 1 to " CHECK_TOKEN_MAX "'"
              " FROM stockade.resource WHERE token NOT BETWEEN 0 AND " CHECK_TOKEN_MAX},
    {"fence", "SELECT name, 'its state is ' || state || ', and its token ' || token"
              " FROM stockade.resource WHERE state NOT BETWEEN 0 AND 3"
              " OR (state = 0) <> (token = 0)"},
    {"fence", "SELECT name, 'it is held ' || holds || ' times in state ' || state"
              " FROM stockade.resource WHERE (state = 1 AND holds < 1)"
              " OR (state <> 1 AND holds <> 0)"},
    {"fence", "SELECT name, 'its lease has a TTL of ' || ttl_ms || ' ms, connection '"
              " || connection || ', and ' || octet_length(owner) || ' bytes for an owner'"
              " FROM stockade.resource WHERE ttl_ms NOT BETWEEN 0 AND 86400000"
              " OR connection < 0 OR octet_length(owner) > 512"},
    {"fence", "SELECT name, 'it was granted in session ' || r.session || ', which has not been'"
              " FROM stockade.resource r, stockade.meta m"
              " WHERE r.session < 0 OR r.session > m.session"},
    {"fence", "SELECT name, 'its fence changed at ' || changed_ms FROM stockade.resource"
              " WHERE changed_ms < 0"},
    {"fence", "SELECT name, 'receipts up to token ' || receipts_gone || ' are gone, and its"
              " token is ' || token FROM stockade.resource, stockade.meta"
              " WHERE receipts_gone < 0 OR receipts_gone > greatest(token, floor)"},
    {"value", "SELECT name, 'its type is ' || type || ', and it has '"
              " || CASE WHEN value IS NULL THEN 0 ELSE 1 END || ' strings and ' || count(field)"
              " || ' fields, of which it counts ' || fields"
              " FROM stockade.resource r LEFT JOIN (SELECT resource, field FROM stockade.field) f"
              " ON f.resource = r.id GROUP BY r.id HAVING type NOT BETWEEN 0 AND 2"
              " OR (type = 1) <> (value IS NOT NULL) OR (type = 2) <> (count(field) > 0)"
              " OR fields <> count(field)"},
    {"value", "SELECT resource, count(*) || ' fields of a resource that is not there'"
              " FROM stockade.field f WHERE NOT EXISTS(SELECT FROM stockade.resource r"
              " WHERE r.id = f.resource) GROUP BY resource"},
    {"value", "SELECT resource, 'a field is of ' || octet_length(field) || ' bytes'"
              " FROM stockade.field WHERE octet_length(field) NOT BETWEEN 1 AND 512"},
    {"receipt", "SELECT resource, count(*) || ' receipts of a resource that is not there'"
                " FROM stockade.receipt t WHERE NOT EXISTS(SELECT FROM stockade.resource r"
                " WHERE r.id = t.resource) GROUP BY resource"},
    {"receipt", "SELECT r.name, 'a receipt of token ' || t.token || ', and its token is '"
                " || r.token FROM stockade.receipt t JOIN stockade.resource r"
                " ON r.id = t.resource WHERE t.token NOT BETWEEN 1 AND r.token"},
    {"receipt", "SELECT resource, 'a receipt with an ID of ' || octet_length(id)"
                " || ' bytes, written at ' || written_ms FROM stockade.receipt"
                " WHERE octet_length(id) NOT BETWEEN 1 AND 512 OR written_ms < 0"},
    {"receipt", "SELECT r.name, 'receipts of token ' || t.token || ', which has ended, would"
                " never be removed' FROM (SELECT DISTINCT resource, token FROM stockade.receipt)"
                " t JOIN stockade.resource r ON r.id = t.resource, stockade.meta"
                " WHERE (r.state <> 1 OR t.token <> r.token OR t.token <= ended)"
                " AND NOT EXISTS(SELECT FROM stockade.retired e"
                " WHERE e.resource = t.resource AND e.token = t.token)"},
    {"receipt", "SELECT r.name, 'receipts of token ' || token || ' would never be removed: its"
                " end would not be noted' FROM stockade.resource r WHERE state = 1"
                " AND receipts_token <> token AND EXISTS(SELECT FROM stockade.receipt t"
                " WHERE t.resource = r.id AND t.token = r.token)"},
    /* A resource that was forgotten may still be named here, but none that never existed. */
    {"receipt", "SELECT resource, 'token ' || token || ' of it ended at ' || retired_ms"
                " || ', as if it had been granted' FROM stockade.retired, stockade.resource_id"
                " WHERE resource NOT BETWEEN 1 AND last_value + 999 OR retired_ms < 0"
                " OR token NOT BETWEEN 1 AND " CHECK_TOKEN_MAX},
    {CHECK_WARNING, "SELECT NULL::bytea, 'this is a copy, or another timeline, or was started"
                    " anew, and no daemon has opened it yet: the first one that does raises the "
                    "floor' FROM stockade.meta"
                    " WHERE identity IS NOT NULL AND (identity, server)"
                    " IS DISTINCT FROM (stockade.identity(), stockade.server())"},
    {CHECK_WARNING, "SELECT NULL::bytea, name || ' = off: a loss of power may lose or damage what"
                    " was acknowledged' FROM pg_settings"
                    " WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'"},
    {CHECK_WARNING, "SELECT NULL::bytea, 'no synchronous standby (synchronous_standby_names): a"
                    " failover loses acknowledged writes' WHERE NOT stockade.is_replicated()"},
    {CHECK_WARNING, "SELECT NULL::bytea, 'synchronous_commit = ' || reset_val"
                    " || ' for programs of your own: their commits ' || CASE reset_val"
                    " WHEN 'remote_write' THEN 'may be lost with the standby''s power'"
                    " ELSE 'may be lost' END FROM pg_settings WHERE name = 'synchronous_commit'"
                    " AND reset_val NOT IN ('on', 'remote_apply')"},
    {CHECK_WARNING, "SELECT NULL::bytea, 'max_prepared_transactions = ' || setting"
                    " || ': a prepared transaction keeps its row locks after its session has"
                    " ended' FROM pg_settings WHERE name = 'max_prepared_transactions'"
                    " AND setting <> '0'"},
    {CHECK_WARNING, "SELECT NULL::bytea, 'the prepared transaction ' || quote_literal(gid)"
                    " || ' of ' || quote_literal(owner) || ' is open since '"
                    " || date_trunc('second', prepared) FROM pg_prepared_xacts"
                    " WHERE database = current_database()"},
    {CHECK_WARNING, "SELECT NULL::bytea, 'process ' || pid || ' (' || coalesce("
                    "nullif(application_name, ''), usename, '?') || ') has a transaction open"
                    " since ' || date_trunc('second', xact_start) || ', which keeps dead rows:"
                    " tables grow' FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND xact_start < clock_timestamp()"
                    " - interval '5 minutes'"},
};

static struct check_subject subject(const struct pg *pg, const PGresult *result, int row)
{
    if (pg->pq.PQgetisnull(result, row, 0))
        return (struct check_subject){.about = CHECK_ABOUT_NOTHING};
    if (pg->pq.PQftype(result, 0) == PG_INT8)
        return (struct check_subject){.about = CHECK_ABOUT_ID,
                                      .id = pg_value_int64(pg, result, row, 0)};
    return (struct check_subject){.about = CHECK_ABOUT_NAME,
                                  .name = pg_value_bytes(pg, result, row, 0)};
}

/* Ask a question, in a trip of its own, and return its rows. NULL: it failed. That is a finding,
 * unless the connection has failed. */
static PGresult *ask(struct check *check, const char *what, const char *sql)
{
    struct pg *pg = &check->pg;

    if (pg->conn == NULL)
        return NULL;
    pg_send_text(pg, "SAVEPOINT stockade_check");
    pg_send_text(pg, sql);
    pg_send_text(pg, "RELEASE stockade_check");
    pg_sync(pg);
    pg_skip(pg, 1);
    PGresult *result = pg_take(pg);
    if (pg_end(pg))
        return result;
    pg->pq.PQclear(result);
    if (pg->conn == NULL)
        return NULL;
    check_report(check->call, "postgresql", "%s cannot be checked: %s", what, pg->why);
    (void)pg_run(pg, "ROLLBACK TO stockade_check");
    return NULL;
}

static void run_rule(struct check *check, const struct rule *rule)
{
    const struct pg *pg = &check->pg;
    struct check_answer answer = {.call = check->call, .kind = rule->kind};
    PGresult *result = ask(check, rule->kind, rule->sql);

    for (int i = 0; i < pg->pq.PQntuples(result); i++)
        check_answer_row(&answer, subject(pg, result, i), pg_value_bytes(pg, result, i, 1));
    pg->pq.PQclear(result);
    check_answer_end(&answer);
}

/* The schema's objects. Which ones have to be there is read from the schema's own SQL. */

static const struct {
    const char *create, *kind;
} made_by[] = {
    {"CREATE TABLE stockade.", "table"},
    {"CREATE VIEW stockade.", "view"},
    {"CREATE FUNCTION stockade.", "function"},
    {"CREATE SEQUENCE stockade.", "sequence"},
    {"CREATE INDEX ", "index"},
};

/* All objects in the schema, but for those that belong to another one (row types, keys' indexes).
 */
static const char objects[] =
    "SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view'"
    " WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index' ELSE 'relation' END, relname::text, NULL"
    " FROM pg_class c WHERE relnamespace = 'stockade'::regnamespace AND relkind NOT IN ('c', 't')"
    " AND NOT EXISTS(SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass"
    " AND d.objid = c.oid AND d.deptype = 'i')"
    " UNION ALL SELECT 'function', proname::text, prosrc FROM pg_proc"
    " WHERE pronamespace = 'stockade'::regnamespace";

/* Return what stands behind the next `create` at the beginning of a line; within lines there may be
 * texts of functions. NULL: there is none. */
static const char *next_made(const char *step, const char *at, const char *create)
{
    while ((at = strstr(at, create)) != NULL && at != step && at[-1] != '\n')
        at++;
    return at != NULL ? at + strlen(create) : NULL;
}

/* Return the name that begins at `at`. */
static struct bytes name_at(const char *at)
{
    return (struct bytes){at, strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789")};
}

/* Is a function of this name a guard's? */
static bool is_of_guard(struct bytes name)
{
    static const char begins[] = "guard_";
    size_t len = sizeof begins - 1;

    return name.len > len && memcmp(name.data, begins, len) == 0 &&
           strspn(name.data + len, "0123456789") == name.len - len;
}

/* Does a step make an object of this kind and name? */
static bool is_made(const char *kind, struct bytes name)
{
    const char *step;

    for (int64_t version = 0; (step = pg_schema_step(version)) != NULL; version++)
        for (size_t i = 0; i < sizeof made_by / sizeof *made_by; i++) {
            if (strcmp(kind, made_by[i].kind) != 0)
                continue;
            for (const char *at = step; (at = next_made(step, at, made_by[i].create)) != NULL;)
                if (bytes_equal(name_at(at), name))
                    return true;
        }
    return false;
}

/* Does a step have this text of a function, word for word? */
static bool is_written(const char *text)
{
    const char *step;

    for (int64_t version = 0; (step = pg_schema_step(version)) != NULL; version++)
        if (strstr(step, text) != NULL)
            return true;
    return false;
}

static bool is_there(const struct check *check, const PGresult *result, const char *kind,
                     struct bytes name)
{
    const struct pg *pg = &check->pg;

    for (int i = 0; i < pg->pq.PQntuples(result); i++)
        if (bytes_equal(pg_value_bytes(pg, result, i, 0), bytes_of(kind)) &&
            bytes_equal(pg_value_bytes(pg, result, i, 1), name))
            return true;
    return false;
}

static void find_gone(struct check *check, const PGresult *result)
{
    const char *step;

    for (int64_t version = 0; (step = pg_schema_step(version)) != NULL; version++)
        for (size_t i = 0; i < sizeof made_by / sizeof *made_by; i++)
            for (const char *at = step; (at = next_made(step, at, made_by[i].create)) != NULL;) {
                struct bytes name = name_at(at);
                if (!is_there(check, result, made_by[i].kind, name))
                    check_report(check->call, "schema", "the %s %.*s is gone", made_by[i].kind,
                                 (int)name.len, name.data);
            }
}

static void check_schema(struct check *check)
{
    const struct pg *pg = &check->pg;
    PGresult *result = ask(check, "the schema", objects);
    char kind[16];

    if (result == NULL)
        return;
    find_gone(check, result);
    for (int i = 0; i < pg->pq.PQntuples(result); i++) {
        struct bytes name = pg_value_bytes(pg, result, i, 1);
        struct bytes text = pg_value_bytes(pg, result, i, 2);
        pg_value_text(pg, result, i, 0, kind, sizeof kind);
        if (strcmp(kind, "function") == 0 && is_of_guard(name))
            continue;
        if (!is_made(kind, name))
            check_report(check->call, "schema", "the %s %.*s is not Stockade's", kind,
                         (int)name.len, name.data);
        else if (text.len > 0 && !is_written(text.data)) /* libpq ends values with a zero */
            check_report(check->call, "schema", "the %s %.*s was altered", kind, (int)name.len,
                         name.data);
    }
    pg->pq.PQclear(result);
}

/* Have the schema's own function check the guards: it knows how it made them. */
static void check_guards(struct check *check)
{
    static const struct rule rule = {
        "guard", "SELECT NULL::bytea, kind || ': ' || problem FROM stockade.guard_problems()"
                 " WHERE kind NOT LIKE 'prepared transaction%'"}; /* a warning of ours */
    const struct pg *pg = &check->pg;
    PGresult *result =
        ask(check, "guards", "SELECT to_regprocedure('stockade.guard_problems()') IS NOT NULL");
    bool there = result != NULL && pg_value_bool(pg, result, 0, 0);

    pg->pq.PQclear(result);
    if (there)
        run_rule(check, &rule);
}

static void count_rows(struct check *check)
{
    PGresult *result = ask(check, "how many rows there are",
                           "SELECT (SELECT count(*) FROM stockade.resource), (SELECT count(*) FROM"
                           " stockade.resource WHERE type <> 0),"
                           " (SELECT count(*) FROM stockade.receipt),"
                           " (SELECT count(*) FROM stockade.guard)");

    if (result == NULL)
        return;
    check->call->resources = pg_value_int64(&check->pg, result, 0, 0);
    check->call->values = pg_value_int64(&check->pg, result, 0, 1);
    check->call->receipts = pg_value_int64(&check->pg, result, 0, 2);
    check->call->guards = pg_value_int64(&check->pg, result, 0, 3);
    check->pg.pq.PQclear(result);
}

static bool go_on(void *context)
{
    return check_goes_on(context);
}

static bool begin(struct check *check)
{
    struct pg *pg = &check->pg;

    if (!pg_connect(pg) ||
        !pg_run(pg, "SET lock_timeout = '10s'; SET client_connection_check_interval = '1s'"))
        return false;
    return pg_schema_is_current(pg) &&
           pg_run(pg, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
}

bool store_postgresql_check(struct check_call *call, char *why, size_t why_size)
{
    struct check check = {.call = call,
                          /* not "stockade ...", which daemons take for one of them */
                          .pg = {.uri = call->store,
                                 .name = "stockade-check",
                                 .timeout_ms = TIMEOUT_MS,
                                 .go_on = go_on,
                                 .go_on_context = &call->watch}};
    bool begun = begin(&check);

    if (begun) {
        check_schema(&check);
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            run_rule(&check, &rules[i]);
        check_guards(&check);
        count_rows(&check);
    }
    bool read = begun && check.pg.conn != NULL;
    if (!read)
        text_print(why, why_size, "%s", check.pg.why);
    pg_drop(&check.pg);
    return read;
}
