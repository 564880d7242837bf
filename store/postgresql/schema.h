/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STOCKADE_STORE_POSTGRESQL_SCHEMA_H
#define STOCKADE_STORE_POSTGRESQL_SCHEMA_H

#include "store/postgresql/pg.h"

/* Is there a store of this program's version? False: pg->why says what there is. */
bool pg_schema_is_current(struct pg *pg);
/* Return the SQL that brings version `version` to the next one; NULL: there is no next one. */
const char *pg_schema_step(int64_t version);
/* Make the schema in the database, or bring it forward. False: pg->why says why not. */
bool pg_schema_prepare(struct pg *pg);
/* Count one more opening of the store. */
bool pg_schema_count_opening(struct pg *pg, int64_t *opening);

/* SQL that lists what others have changed in our own tables. A row says what it is, what to do
 * about it, and whether it does harm: whether it can change, without an error, what is written or
 * read. The tables below have to be those that the schema's steps make. */
#define PG_SCHEMA_CHANGES                                                                          \
    "WITH made(name, columns, keys) AS (VALUES"                                                    \
    " ('audit', 'chain text !, lines bigint !, hash text !, identity text !',"                     \
    " ARRAY['PRIMARY KEY (chain)']),"                                                              \
    " ('code', 'signature text !, hash text !',"                                                   \
    " ARRAY['PRIMARY KEY (signature)']),"                                                          \
    " ('field', 'resource bigint !, field bytea !, value bytea !',"                                \
    " ARRAY['PRIMARY KEY (resource, field)']),"                                                    \
    " ('guard', 'id integer !a, relation regclass !, name text !, key text !, type regtype "       \
    "!, prefix text !, by_row boolean !',"                                                         \
    " ARRAY['PRIMARY KEY (id)', 'UNIQUE (relation)']),"                                            \
    " ('guard_token', 'id integer !, token text !, adds boolean !',"                               \
    " ARRAY['PRIMARY KEY (id)']),"                                                                 \
    " ('mark', 'session bigint !, number bigint !, written_ms bigint !, void boolean !',"          \
    " ARRAY['PRIMARY KEY (session, number)']),"                                                    \
    " ('meta', 'one boolean !, version bigint !, session bigint !, floor bigint !, "               \
    "identity text, timeline text, replicated boolean !, move_part smallint !, "                   \
    "move_id text !, move_where text !, clock_ms bigint !, clock_number bigint "                   \
    "!, noted_ms bigint !, noted_wall_ms bigint !, server text, ended bigint !',"                  \
    " ARRAY['CHECK (one)', 'PRIMARY KEY (one)']),"                                                 \
    " ('receipt', 'resource bigint !, id bytea !, token bigint !, fingerprint bigint !, resp3 "    \
    "boolean !, written_ms bigint !, reply bytea !',"                                              \
    " ARRAY['PRIMARY KEY (resource, id)']),"                                                       \
    " ('resource', 'id bigint !, name bytea !, token bigint !, state smallint !, type smallint "   \
    "!, anonymous boolean !, holds bigint !, ttl_ms bigint !, session bigint !, "                  \
    "connection bigint !, changed_ms bigint !, changes bigint !, waited boolean "                  \
    "!, receipts_gone bigint !, receipts_token bigint !, fields bigint !, owner "                  \
    "bytea !, value bytea',"                                                                       \
    " ARRAY['PRIMARY KEY (id)', 'UNIQUE (name)']),"                                                \
    " ('retired', 'number bigint !a, resource bigint !, token bigint !, retired_ms bigint !',"     \
    " ARRAY['PRIMARY KEY (number)'])),"                                                            \
    " ours AS (SELECT c.*, m.* FROM made m JOIN pg_class c ON c.relname = m.name"                  \
    " AND c.relnamespace = 'stockade'::regnamespace),"                                             \
    " bound AS (SELECT name, keys, conname, pg_get_constraintdef(o.oid) AS text"                   \
    " FROM ours JOIN pg_constraint o ON conrelid = ours.oid WHERE contype <> 'n')"                 \
    " SELECT format('the trigger %I on stockade.%s is not Stockade''s', tgname, name),"            \
    " format('DROP TRIGGER %I ON stockade.%s', tgname, name), true"                                \
    " FROM ours JOIN pg_trigger ON tgrelid = ours.oid WHERE NOT tgisinternal"                      \
    " UNION ALL SELECT format('the rule %I on stockade.%s is not Stockade''s', rulename, name),"   \
    " format('DROP RULE %I ON stockade.%s', rulename, name), true"                                 \
    " FROM ours JOIN pg_rewrite ON ev_class = ours.oid"                                            \
    " UNION ALL SELECT format('stockade.%s has row level security', name),"                        \
    " format('ALTER TABLE stockade.%s DISABLE ROW LEVEL SECURITY', name), true"                    \
    " FROM ours WHERE relrowsecurity"                                                              \
    " UNION ALL SELECT format('the table %s inherits from stockade.%s', inhrelid::regclass, "      \
    "name),"                                                                                       \
    " format('ALTER TABLE %s NO INHERIT stockade.%s', inhrelid::regclass, name), true"             \
    " FROM ours JOIN pg_inherits ON inhparent = ours.oid"                                          \
    " UNION ALL SELECT format('stockade.%s is unlogged: a crash of the server would empty it', "   \
    "name),"                                                                                       \
    " format('ALTER TABLE stockade.%s SET LOGGED', name), true FROM ours WHERE relpersistence <> " \
    "'p'"                                                                                          \
    " UNION ALL SELECT format('the table stockade.%s was altered', name),"                         \
    " 'undo that, or restore a backup', true FROM ours WHERE relkind <> 'r'"                       \
    " OR columns IS DISTINCT FROM (SELECT string_agg(concat(attname, ' ',"                         \
    " format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' !' END, attidentity::text,"    \
    " attgenerated::text), ', ' ORDER BY attnum) FROM pg_attribute a"                              \
    " WHERE a.attrelid = ours.oid AND attnum > 0 AND NOT attisdropped)"                            \
    " OR NOT keys <@ ARRAY(SELECT text FROM bound WHERE bound.name = ours.name)"                   \
    " UNION ALL SELECT format('the constraint %I on stockade.%s is not Stockade''s', conname, "    \
    "name),"                                                                                       \
    " format('ALTER TABLE stockade.%s DROP CONSTRAINT %I', name, conname), false"                  \
    " FROM bound WHERE text <> ALL(keys)"

/* SQL that gives one of the changes that do harm. */
#define PG_SCHEMA_HARMS                                                                            \
    "SELECT what, remedy FROM (" PG_SCHEMA_CHANGES ") AS c(what, remedy, harms) WHERE harms "      \
    "LIMIT 1"

/* Tell who has had a transaction open on Stockade's objects for longest, besides this connection.
 * Empty: nobody, or the server has failed. */
void pg_schema_holder(struct pg *pg, char holder[PG_HOLDER_MAX]);
/* Are our tables free of changes that do harm? False: pg->why says what was changed and what to do,
 * or that the server has failed. */
bool pg_schema_is_ours(struct pg *pg);

#endif
