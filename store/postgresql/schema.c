/* SPDX-License-Identifier: Apache-2.0 */
/* The schema `stockade`, as a list of steps: step i brings version i to version i+1. A step, once
 * released, is never edited: a change is a new step. Daemons of an older version go on while it is
 * made, and refuse to start after it.
 *
 * Fence, lease and string are one row: a write makes one row version. Nothing refers to that row
 * by a foreign key, for that would lock it. */
#include "store/postgresql/schema.h"

#include <stdlib.h>
#include <string.h>

#include "store/postgresql/statements.h"

static const char *const steps[] = {
    "CREATE SCHEMA stockade;"
    /* One row. `replicated`: commits went to a synchronous standby when it was looked at last. */
    "CREATE TABLE stockade.meta("
    "  one boolean PRIMARY KEY DEFAULT true CHECK(one), version int8 NOT NULL,"
    "  session int8 NOT NULL DEFAULT 0, floor int8 NOT NULL DEFAULT 0,"
    "  identity text, timeline text, replicated boolean NOT NULL DEFAULT false);"
    "INSERT INTO stockade.meta(version) VALUES(0);"
    /* state, type: as enum fence_state and enum value_type. Ids are taken in blocks. */
    "CREATE SEQUENCE stockade.resource_id INCREMENT 1000;"
    "CREATE TABLE stockade.resource("
    "  id int8 PRIMARY KEY, name bytea NOT NULL UNIQUE, token int8 NOT NULL,"
    "  state int2 NOT NULL, type int2 NOT NULL, anonymous boolean NOT NULL, holds int8 NOT NULL,"
    "  ttl_ms int8 NOT NULL, session int8 NOT NULL, connection int8 NOT NULL,"
    "  changed_ms int8 NOT NULL, receipts_gone int8 NOT NULL, receipts_token int8 NOT NULL,"
    "  fields int8 NOT NULL, owner bytea NOT NULL, value bytea) WITH (fillfactor = 70);"
    "CREATE INDEX resource_keys ON stockade.resource(id) WHERE type <> 0;"
    "CREATE TABLE stockade.field("
    "  resource int8 NOT NULL, field bytea NOT NULL, value bytea NOT NULL,"
    "  PRIMARY KEY(resource, field)) WITH (fillfactor = 70);"
    "CREATE TABLE stockade.receipt("
    "  resource int8 NOT NULL, id bytea NOT NULL, token int8 NOT NULL,"
    "  fingerprint int8 NOT NULL, resp3 boolean NOT NULL, written_ms int8 NOT NULL,"
    "  reply bytea NOT NULL, PRIMARY KEY(resource, id));"
    "CREATE INDEX receipt_token ON stockade.receipt(resource, token, id);"
    /* Tokens with receipts, in the order in which they were retired. */
    "CREATE TABLE stockade.retired("
    "  number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, resource int8 NOT NULL,"
    "  token int8 NOT NULL, retired_ms int8 NOT NULL);"
    /* One for each transaction that changes something: was it committed? */
    "CREATE TABLE stockade.mark("
    "  session int8, number int8, void boolean NOT NULL, PRIMARY KEY(session, number));"
    "CREATE TABLE stockade.audit("
    "  chain text PRIMARY KEY, lines int8 NOT NULL, hash text NOT NULL, identity text NOT NULL);"
    /* Another system, database or table is another store, even where its rows are the same; and
     * so is another timeline, which a promoted standby begins. Its number is hexadecimal. */
    "CREATE FUNCTION stockade.identity() RETURNS text LANGUAGE sql STABLE"
    "  SET search_path = pg_catalog AS"
    "  $$SELECT concat_ws('/', system_identifier,"
    "    (SELECT oid FROM pg_database WHERE datname = current_database()),"
    "    'stockade.resource'::regclass::oid) FROM pg_control_system()$$;"
    "CREATE FUNCTION stockade.timeline() RETURNS text LANGUAGE sql VOLATILE AS"
    "  $$SELECT pg_catalog.left(pg_catalog.pg_walfile_name("
    "    pg_catalog.pg_current_wal_insert_lsn()), 8)$$;"
    "CREATE FUNCTION stockade.is_replicated() RETURNS boolean LANGUAGE sql STABLE AS"
    "  $$SELECT pg_catalog.current_setting('synchronous_standby_names') <> ''$$;"
    /* The public face: text where the bytes are UTF-8, else with escapes. */
    "CREATE FUNCTION stockade.text(bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT"
    "  SET search_path = pg_catalog AS"
    "  $$BEGIN RETURN convert_from($1, 'UTF8'); EXCEPTION WHEN OTHERS THEN"
    "  RETURN encode($1, 'escape'); END$$;"
    "CREATE VIEW stockade.fences(resource, token, state, owner, holds, ttl_ms) AS"
    "  SELECT stockade.text(name), token,"
    "    CASE state WHEN 1 THEN 'live' WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,"
    "    stockade.text(owner), holds, ttl_ms FROM stockade.resource WHERE state <> 0;"
    "CREATE VIEW stockade.strings(key, value) AS"
    "  SELECT stockade.text(name), stockade.text(value)"
    "  FROM stockade.resource WHERE type = 1;"
    "CREATE VIEW stockade.fields(key, field, value) AS"
    "  SELECT stockade.text(name), stockade.text(field), stockade.text(f.value)"
    "  FROM stockade.field f JOIN stockade.resource r ON r.id = f.resource;",
};

enum { VERSION = sizeof steps / sizeof *steps };

/* The first number of the first row of a query; -1: it failed. */
static int64_t number(struct pg *pg, const char *query)
{
    pg_send_text(pg, query);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    int64_t value = result != NULL ? pg_value_int64(pg, result, 0, 0) : -1;
    pg->pq.PQclear(result);
    return pg_end(pg) ? value : -1;
}

/* The version that is there, 0 for none. -1: it is none of ours, or the server failed. */
static int64_t recognise(struct pg *pg)
{
    int64_t is = number(pg, "SELECT count(*) FROM pg_namespace WHERE nspname = 'stockade'");
    if (is <= 0)
        return is;
    is = number(pg, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
                    " WHERE nspname = 'stockade' AND relname = 'meta'");
    if (is == 0)
        text_print(
            pg->why, sizeof pg->why,
            "the database has a schema `stockade` that is not Stockade's; it was left alone: "
            "name another database");
    if (is <= 0)
        return -1;
    is = number(pg, "SELECT version FROM stockade.meta");
    if (is > VERSION)
        text_print(pg->why, sizeof pg->why,
                   "the database has schema version %lld, newer than this program's %d: run the "
                   "newer stockaded",
                   (long long)is, VERSION);
    return is > VERSION ? -1 : is;
}

static bool take_steps(struct pg *pg, int64_t version)
{
    char set[80];

    for (int64_t at = version; at < VERSION; at++)
        if (!pg_run(pg, steps[at]))
            return false;
    text_print(set, sizeof set, "UPDATE stockade.meta SET version = %d", VERSION);
    return pg_run(pg, set);
}

bool pg_schema_prepare(struct pg *pg)
{
    int64_t version = recognise(pg);

    if (version < 0 || version == VERSION)
        return version == VERSION;
    /* Again, under the lock: another daemon may have been quicker. */
    bool good = pg_run(pg, "BEGIN; SELECT pg_advisory_xact_lock(" PG_FLOOR_LOCK ")");
    version = good ? recognise(pg) : -1;
    good = version >= 0 && (version == VERSION || take_steps(pg, version)) && pg_run(pg, "COMMIT");
    if (!good && pg->conn != NULL) {
        char why[STORE_WHY_MAX];
        text_print(why, sizeof why, "%s", pg->why);
        (void)pg_run(pg, "ROLLBACK");
        text_print(pg->why, sizeof pg->why, "%s", why);
    }
    return good;
}

bool pg_schema_session(struct pg *pg, int64_t *session)
{
    *session = number(pg, "UPDATE stockade.meta SET session = session + 1 RETURNING session");
    return *session > 0;
}
