/* SPDX-License-Identifier: Apache-2.0 */
/* The schema `stockade` is made by a list of steps (schema/): step i brings version i to version
 * i+1. A step that was released is never edited; a change is a new step. Daemons of an older
 * version go on while a step is made, and do not start after it. */
#include "store/postgresql/schema.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/embed.h"
#include "store/postgresql/kept_out.h"
#include "store/postgresql/statements.h"

/* The advisory lock under which one daemon makes the schema. Nobody else should use its number,
 * which is "stockade" in ASCII. */
#define SCHEMA_LOCK "8319395793566789733"

EMBED_FILE(step_store, "store/postgresql/schema/1_store.sql");
EMBED_FILE(step_sql, "store/postgresql/schema/2_sql.sql");
EMBED_FILE(step_guards, "store/postgresql/schema/3_guards.sql");
EMBED_FILE(step_anew, "store/postgresql/schema/4_anew.sql");
EMBED_FILE(step_held, "store/postgresql/schema/5_held.sql");
EMBED_FILE(step_column, "store/postgresql/schema/6_column.sql");
EMBED_FILE(step_refused, "store/postgresql/schema/7_refused.sql");

static const char *const steps[] = {
    step_store, step_sql, step_guards, step_anew, step_held, step_column, step_refused,
};

enum { VERSION = sizeof steps / sizeof *steps };

/* Return the number that a query gives. -1: it failed. */
static int64_t number(struct pg *pg, const char *query)
{
    pg_send_text(pg, query);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool any = pg->pq.PQntuples(result) > 0;
    int64_t value = any ? pg_value_int64(pg, result, 0, 0) : -1;
    pg->pq.PQclear(result);
    bool asked = pg_end(pg);
    if (asked && !any) {
        text_print(pg->why, sizeof pg->why, "the store is damaged: stockade.meta is empty");
        pg->lasts = true;
    }
    return asked ? value : -1;
}

/* Return the version that is there, 0 for none. -1: the schema is not ours, or a newer one, or the
 * server failed; pg->why says so. */
static int64_t recognise(struct pg *pg)
{
    int64_t is = number(pg, "SELECT count(*) FROM pg_namespace WHERE nspname = 'stockade'");
    if (is <= 0)
        return is;
    is = number(pg, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
                    " WHERE nspname = 'stockade' AND relname = 'meta'");
    if (is == 0) {
        text_print(
            pg->why, sizeof pg->why,
            "the database has a schema `stockade` that is not Stockade's; it was left alone: "
            "name another database");
        pg->lasts = true;
    }
    if (is <= 0)
        return -1;
    is = number(pg, "SELECT version FROM stockade.meta");
    if (is <= VERSION)
        return is;
    text_print(pg->why, sizeof pg->why,
               "the database has schema version %lld, newer than this program's %d: run the newer "
               "stockaded",
               (long long)is, VERSION);
    pg->lasts = true;
    return -1;
}

void pg_schema_holder(struct pg *pg, char holder[PG_HOLDER_MAX])
{
    holder[0] = '\0';
    pg_send_text(pg, PG_SCHEMA_HOLDER);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (pg->pq.PQntuples(result) > 0)
        pg_value_text(pg, result, 0, 0, holder, PG_HOLDER_MAX);
    pg->pq.PQclear(result);
    (void)pg_end(pg);
}

static bool take_steps(struct pg *pg, int64_t version)
{
    char set[80];

    if (!pg_run(pg, "SAVEPOINT stockade_steps; SET LOCAL lock_timeout = '200ms'"))
        return false;
    for (int64_t at = version; at < VERSION; at++)
        if (!pg_run(pg, steps[at]))
            return false;
    text_print(set, sizeof set, "UPDATE stockade.meta SET version = %d", VERSION);
    return pg_run(pg, set);
}

/* A step waits for transactions that are open on our tables, such as one of a program that has
 * presented a token, and meanwhile everybody else waits behind the step. So it waits for each lock
 * for a moment only; then it gives back those that it has. This pause, still under the advisory
 * lock, sees to it that of all daemons one tries in each second. */
static void stand_back(struct pg *pg)
{
    char holder[PG_HOLDER_MAX];

    if (!pg_run(pg, "ROLLBACK TO stockade_steps"))
        return;
    pg_schema_holder(pg, holder);
    if (pg->conn != NULL)
        (void)pg_run(pg, "SELECT pg_sleep(0.8)");
    text_print(pg->why, sizeof pg->why,
               "the schema comes to version %d once no older transaction is open on it%s%s",
               VERSION, holder[0] != '\0' ? ": " : "", holder);
}

bool pg_schema_prepare(struct pg *pg)
{
    int64_t version = recognise(pg);

    if (version < 0 || version == VERSION)
        return version == VERSION;
    /* Look again under the lock: another daemon may have been quicker. */
    bool good = pg_run(pg, "BEGIN; SELECT pg_advisory_xact_lock(" SCHEMA_LOCK ")");
    if (!good && kept_out_is_why(pg))
        text_print(pg->why, sizeof pg->why, "another connection is making the store's schema");
    version = good ? recognise(pg) : -1;
    good = version >= 0 && (version == VERSION || take_steps(pg, version)) && pg_run(pg, "COMMIT");
    if (version > 0 && version < VERSION && pg->conn != NULL && kept_out_is_why(pg))
        stand_back(pg);
    if (!good && pg->conn != NULL) {
        char why[STORE_WHY_MAX], sqlstate[sizeof pg->sqlstate];
        memcpy(why, pg->why, sizeof why);
        memcpy(sqlstate, pg->sqlstate, sizeof sqlstate);
        (void)pg_run(pg, "ROLLBACK");
        memcpy(pg->why, why, sizeof why);
        memcpy(pg->sqlstate, sqlstate, sizeof sqlstate);
    }
    return good;
}

bool pg_schema_is_current(struct pg *pg)
{
    int64_t version = recognise(pg);

    if (version == 0)
        text_print(pg->why, sizeof pg->why, "there is no store in this database");
    else if (version > 0 && version != VERSION)
        text_print(pg->why, sizeof pg->why,
                   "it has schema version %lld, and this program needs %d: run this version's "
                   "stockaded on it once",
                   (long long)version, VERSION);
    return version == VERSION;
}

const char *pg_schema_step(int64_t version)
{
    return version < VERSION ? steps[version] : NULL;
}

bool pg_schema_is_ours(struct pg *pg)
{
    char what[200], remedy[200];

    if (pg->statements > 0)
        pg_send(pg, PG_SCHEMA_HARM, NULL);
    else
        pg_send_text(pg, PG_SCHEMA_HARMS);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool harmed = pg->pq.PQntuples(result) > 0;
    if (harmed) {
        pg_value_text(pg, result, 0, 0, what, sizeof what);
        pg_value_text(pg, result, 0, 1, remedy, sizeof remedy);
    }
    pg->pq.PQclear(result);
    bool asked = pg_end(pg);
    if (asked && harmed)
        text_print(pg->why, sizeof pg->why, "%s: %s", what, remedy);
    return asked && !harmed;
}

bool pg_schema_count_opening(struct pg *pg, int64_t *opening)
{
    *opening = number(pg, "UPDATE stockade.meta SET session = session + 1 RETURNING session");
    return *opening > 0;
}
