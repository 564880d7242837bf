/* SPDX-License-Identifier: Apache-2.0 */
/* Stockade's own statements, prepared on each connection. */
#ifndef STOCKADE_STORE_POSTGRESQL_STATEMENTS_H
#define STOCKADE_STORE_POSTGRESQL_STATEMENTS_H

#include "store/postgresql/differs.h"
#include "store/postgresql/schema.h"

/* A value of up to so many bytes comes along with its row. A larger one is NULL there, and is read
 * by a statement of its own. */
#define PG_ALONG_MAX "8192"
/* How many rows of a list come at once. */
#define PG_PAGE_MAX    1000
#define PG_DIGITS(n)   #n
#define PG_LIMIT_OF(n) " LIMIT " PG_DIGITS(n)
#define PG_LIMIT       PG_LIMIT_OF(PG_PAGE_MAX)
/* Of a hash, so many bytes of values come at once, and the value that goes beyond them. */
#define PG_PAGE_BYTES_MAX  1048576
#define PG_DIGITS_OF(n)    PG_DIGITS(n)
#define PG_PAGE_BYTES_TEXT PG_DIGITS_OF(PG_PAGE_BYTES_MAX)
#define PG_ROW                                                                                     \
    "SELECT id, name, token, state::int8, type::int8, holds, ttl_ms, session, connection,"         \
    " anonymous, owner, changed_ms, receipts_gone, receipts_token, fields,"                        \
    " CASE WHEN octet_length(value) <= " PG_ALONG_MAX " THEN value END, changes, waited"           \
    " FROM stockade.resource WHERE name = ANY($1)"
/* The holder of a lock, a backend `a` or a prepared transaction `p`: its pid, since when it is in
 * its state, whether it is of our kind, whether it waits for its client, and a text for people. */
#define PG_HOLDER_STATE "coalesce((extract(epoch FROM a.state_change) * 1000000)::int8, 0)"
#define PG_HOLDER_OURS                                                                             \
    "coalesce(a.usename = current_user AND a.application_name LIKE 'stockade %', false)"
#define PG_HOLDER_STANDS "coalesce(a.wait_event_type = 'Client', false)"
#define PG_HOLDER_TEXT                                                                             \
    " CASE WHEN p.gid IS NOT NULL"                                                                 \
    " THEN concat('prepared transaction ', left(p.gid, 64), ', user ', p.owner,"                   \
    " ' (COMMIT PREPARED or ROLLBACK PREPARED ends it)')"                                          \
    " ELSE concat('backend PID ', a.pid, ', user ', a.usename,"                                    \
    " ', application ' || nullif(a.application_name, ''), ', ' || a.state || ' since '"            \
    " || round(extract(epoch FROM clock_timestamp() - a.state_change)) || ' s') END"
#define PG_HOLDER_COLUMNS                                                                          \
    "SELECT coalesce(a.pid, 0)::int8, " PG_HOLDER_STATE ", " PG_HOLDER_OURS ", " PG_HOLDER_STANDS  \
    "," PG_HOLDER_TEXT
/* Find the prepared transaction that has the lock `l`; such a lock has no process. */
#define PG_OF_PREPARED                                                                             \
    " LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND EXISTS(SELECT FROM pg_locks t"            \
    " WHERE t.pid IS NULL AND t.virtualtransaction = l.virtualtransaction"                         \
    " AND t.transactionid = p.transaction)"
/* Who keeps others out of stockade.meta, or keeps somebody waiting who wants it alone: its pid,
 * since when it is in its state, whether it stands still in a COPY of ours, how far that has come,
 * and a text for people. */
#define PG_META_HOLDER                                                                             \
    "SELECT coalesce(a.pid, 0)::int8, " PG_HOLDER_STATE                                            \
    ", coalesce(a.usename = current_user AND a.application_name = '" PG_MAINTENANCE_NAME "'"       \
    " AND c.pid IS NOT NULL, false) AND " PG_HOLDER_STANDS                                         \
    ", coalesce(c.bytes_processed + c.tuples_processed, -1)::int8," PG_HOLDER_TEXT                 \
    " FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"                               \
    " LEFT JOIN pg_stat_progress_copy c ON c.pid = l.pid" PG_OF_PREPARED                           \
    " WHERE l.granted AND l.relation = 'stockade.meta'::regclass"                                  \
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"           \
    " AND l.pid IS DISTINCT FROM pg_backend_pid()"                                                 \
    " AND (l.mode IN ('ExclusiveLock', 'AccessExclusiveLock') OR (l.mode <> 'AccessShareLock'"     \
    " AND coalesce(a.xact_start < clock_timestamp() - interval '1 s', true)))"                     \
    " ORDER BY l.mode IN ('ExclusiveLock', 'AccessExclusiveLock') DESC, a.xact_start LIMIT 1"

/* Who has had a transaction open on Stockade's objects for longest. */
#define PG_SCHEMA_HOLDER                                                                           \
    "SELECT" PG_HOLDER_TEXT                                                                        \
    " FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid" PG_OF_PREPARED                \
    " WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()"                                 \
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"           \
    " AND l.relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'stockade'::regnamespace)"  \
    " ORDER BY a.xact_start NULLS FIRST LIMIT 1"

/* Log the end of live tokens that have receipts, with this date. */
#define PG_RETIRE(now_ms)                                                                          \
    "INSERT INTO stockade.retired(resource, token, retired_ms)"                                    \
    " SELECT id, token, " now_ms "::int8 FROM stockade.resource"                                   \
    " WHERE state = 1 AND receipts_token = token"                                                  \
    " AND token > (SELECT ended FROM stockade.meta)"

/* A statement that has to change `count` rows of `table`; `good` is SQL that is true of a row that
 * was changed as told. A trigger or a rule that somebody has made may keep rows as they are: then
 * the statement fails, so that the server skips COMMIT, which comes in the same trip. */
#define PG_CHANGES(table, count, good, sql)                                                        \
    "WITH done(good) AS (" sql " RETURNING " good                                                  \
    ") SELECT CASE WHEN count(*) FILTER (WHERE good)"                                              \
    " <> " count " THEN concat('stockade." table ": of ', " count ", ' rows, changed as told ',"   \
    " count(*) FILTER (WHERE good))::int4 END FROM done"
#define PG_EACH "cardinality($1)"

#define PG_WHEN(name, sql, text) " WHEN " sql " THEN '" #name "'"

#define PG_STATEMENT_MAP(X)                                                                        \
    X(BEGIN, "BEGIN")                                                                              \
    X(BEGIN_READ, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")                               \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    /* To raise the floor a transaction needs this lock to itself; those that grant share it.      \
     * (It is no advisory lock, since anybody may take one.) */                                    \
    X(FLOOR_SHARED, "LOCK TABLE stockade.meta IN ROW SHARE MODE")                                  \
    X(FLOOR_EXCLUSIVE, "LOCK TABLE stockade.meta IN EXCLUSIVE MODE")                               \
    /* The state of the store, read after the transaction's rows: a row that was removed           \
     * before has raised the floor then. */                                                        \
    X(STATE, "SELECT floor, stockade.now_ms() + clock_ms, (CASE" PG_DIFFERS_MAP(                   \
                 PG_WHEN) " END), clock_number, ended, replicated FROM stockade.meta")             \
    X(IDENTITY, "SELECT identity IS DISTINCT FROM stockade.identity(),"                            \
                " timeline IS DISTINCT FROM stockade.timeline(),"                                  \
                " ('x' || stockade.timeline())::bit(32)::int8, replicated, identity IS NULL,"      \
                " current_setting('fsync') = 'off',"                                               \
                " replicated <> stockade.is_replicated(), move_part::int8, move_where,"            \
                " server IS DISTINCT FROM stockade.server(),"                                      \
                " (SELECT system_identifier FROM pg_control_system())"                             \
                " FROM stockade.meta")                                                             \
    X(SCHEMA_HARM, PG_SCHEMA_HARMS)                                                                \
    /* How many of these marks are missing, with no later one of the same connection there?        \
     * And is the opening missing? */                                                              \
    X(MARKS_GONE, "SELECT (SELECT count(*) FROM unnest($2::int8[], $3::int8[]) AS a(n, e)"         \
                  " WHERE e >= ended AND NOT EXISTS("                                              \
                  "SELECT FROM stockade.mark WHERE session = $1 AND number >= n"                   \
                  " AND number % 4 = n % 4 AND NOT void)), session < $1 FROM stockade.meta")       \
    X(TOKEN_LARGEST, "SELECT greatest(floor, (SELECT max(token) FROM stockade.resource)),"         \
                     " stockade.now_ms() + clock_ms FROM stockade.meta")                           \
    X(IDENTITY_PUT, "UPDATE stockade.meta SET identity = stockade.identity(),"                     \
                    " timeline = stockade.timeline(), server = stockade.server(),"                 \
                    " replicated = stockade.is_replicated()")                                      \
    /* Openings of another copy must have other numbers, too. */                                   \
    X(BEGIN_ANEW, "UPDATE stockade.meta SET floor = $1, session = greatest(session + 1, $1)")      \
    X(END_ALL, "UPDATE stockade.meta SET ended = floor")                                           \
    /* A logical replica has the rows, but its sequences are not as far as they were. */           \
    X(SEQUENCES_RAISE, "SELECT setval('stockade.resource_id', greatest(last_value,"                \
                       " (SELECT max(id) FROM stockade.resource))),"                               \
                       " setval(pg_get_serial_sequence('stockade.retired', 'number'),"             \
                       " (SELECT coalesce(max(number), 0) + 1 FROM stockade.retired)),"            \
                       " setval(pg_get_serial_sequence('stockade.guard', 'id'),"                   \
                       " (SELECT coalesce(max(id), 0) + 1 FROM stockade.guard))"                   \
                       " FROM stockade.resource_id")                                               \
    X(CLOCK, "SELECT stockade.now_ms() + clock_ms, clock_number, noted_ms, noted_wall_ms,"         \
             " stockade.server() FROM stockade.meta")                                              \
    X(CLOCK_PUT, "UPDATE stockade.meta SET clock_ms = clock_ms - $1,"                              \
                 " clock_number = clock_number + 1 WHERE clock_number = $2")                       \
    X(CLOCK_NOTE, "UPDATE stockade.meta SET noted_ms = stockade.now_ms() + clock_ms,"              \
                  " noted_wall_ms = $1")                                                           \
    X(REPLICATED_PUT, "UPDATE stockade.meta SET replicated = stockade.is_replicated()"             \
                      " WHERE replicated <> stockade.is_replicated()")                             \
    X(LOCK, PG_ROW " FOR NO KEY UPDATE SKIP LOCKED")                                               \
    X(FIND, PG_ROW)                                                                                \
    X(EXISTING, "SELECT name FROM stockade.resource WHERE name = ANY($1)")                         \
    X(STRINGS, "SELECT id, value FROM stockade.resource WHERE id = ANY($1)")                       \
    X(ALL_FIELDS, "SELECT resource, field, value FROM stockade.field WHERE resource = ANY($1)")    \
    X(FIELDS, "SELECT f.resource, f.field, f.value FROM unnest($1::int8[], $2::bytea[])"           \
              " AS k(resource, field) JOIN stockade.field f USING (resource, field)")              \
    X(RECEIPTS, "SELECT r.resource, r.id, r.token, r.fingerprint, r.resp3, r.written_ms, r.reply"  \
                " FROM unnest($1::int8[], $2::bytea[]) AS k(resource, id)"                         \
                " JOIN stockade.receipt r USING (resource, id)")                                   \
    /* Fields and receipts by the names of their resources. A large value is left out. */          \
    X(FIELDS_OF, "SELECT r.id, k.field,"                                                           \
                 " CASE WHEN octet_length(f.value) <= " PG_ALONG_MAX " THEN f.value END"           \
                 " FROM unnest($1::bytea[], $2::bytea[]) AS k(name, field)"                        \
                 " JOIN stockade.resource r USING (name)"                                          \
                 " JOIN stockade.field f ON f.resource = r.id AND f.field = k.field")              \
    X(RECEIPTS_OF, "SELECT r.id, k.id, t.token, t.fingerprint, t.resp3, t.written_ms,"             \
                   " CASE WHEN octet_length(t.reply) <= " PG_ALONG_MAX " THEN t.reply END"         \
                   " FROM unnest($1::bytea[], $2::bytea[]) AS k(name, id)"                         \
                   " JOIN stockade.resource r USING (name)"                                        \
                   " JOIN stockade.receipt t ON t.resource = r.id AND t.id = k.id")                \
    X(IDS, "SELECT nextval('stockade.resource_id')")                                               \
    /* Writing the changes of a working set. */                                                    \
    X(PUT_FENCES,                                                                                  \
      PG_CHANGES("resource", PG_EACH, "r.token = k.token AND r.state = k.state",                   \
                 "UPDATE stockade.resource r SET token = k.token, state = k.state,"                \
                 " holds = k.holds, ttl_ms = k.ttl_ms, session = k.session,"                       \
                 " connection = k.connection, anonymous = k.anonymous, owner = k.owner,"           \
                 " changed_ms = k.changed_ms, changes = k.changes, waited = k.waited,"             \
                 " receipts_token = k.receipts_token, type = k.type, fields = k.fields"            \
                 " FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[],"        \
                 " $6::int8[], $7::int8[], $8::bool[], $9::bytea[], $10::int8[], $11::int8[],"     \
                 " $12::bool[], $13::int8[], $14::int8[], $15::int8[]) AS k(id, token, state,"     \
                 " holds, ttl_ms, session, connection, anonymous, owner, changed_ms, changes,"     \
                 " waited, receipts_token, type, fields)"                                          \
                 " WHERE r.id = k.id AND r.token <= k.token"))                                     \
    X(PUT_VALUES,                                                                                  \
      PG_CHANGES("resource", PG_EACH, "true",                                                      \
                 "UPDATE stockade.resource r SET value = k.value, type = k.type,"                  \
                 " fields = k.fields, receipts_token = k.receipts_token"                           \
                 " FROM unnest($1::int8[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[])"       \
                 " AS k(id, value, type, fields, receipts_token) WHERE r.id = k.id"))              \
    X(PUT_TYPES, PG_CHANGES("resource", PG_EACH, "true",                                           \
                            "UPDATE stockade.resource r SET type = k.type, fields = k.fields,"     \
                            " receipts_token = k.receipts_token"                                   \
                            " FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[])"         \
                            " AS k(id, type, fields, receipts_token) WHERE r.id = k.id"))          \
    X(MAKE,                                                                                        \
      PG_CHANGES(                                                                                  \
          "resource", PG_EACH, "true",                                                             \
          "INSERT INTO stockade.resource(id, name, token, state, holds, ttl_ms, session,"          \
          " connection, anonymous, owner, changed_ms, changes, waited, receipts_token, type,"      \
          " fields, receipts_gone, value)"                                                         \
          " SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[],"     \
          " $6::int8[], $7::int8[], $8::int8[], $9::bool[], $10::bytea[], $11::int8[],"            \
          " $12::int8[], $13::bool[], $14::int8[], $15::int8[], $16::int8[], $17::int8[],"         \
          " $18::bytea[])"))                                                                       \
    X(CLEAR_FIELDS,                                                                                \
      PG_CHANGES("field", "(SELECT count(*) FROM stockade.field WHERE resource = ANY($1))",        \
                 "true", "DELETE FROM stockade.field WHERE resource = ANY($1)"))                   \
    X(PUT_FIELDS,                                                                                  \
      PG_CHANGES("field", PG_EACH, "true",                                                         \
                 "INSERT INTO stockade.field(resource, field, value)"                              \
                 " SELECT * FROM unnest($1::int8[], $2::bytea[], $3::bytea[])"                     \
                 " ON CONFLICT (resource, field) DO UPDATE SET value = excluded.value"))           \
    X(REMOVE_FIELDS,                                                                               \
      PG_CHANGES("field",                                                                          \
                 "(SELECT count(*) FROM unnest($1, $2) AS k(resource, field) JOIN stockade.field " \
                 "USING (resource, field))",                                                       \
                 "true",                                                                           \
                 "DELETE FROM stockade.field f USING unnest($1::int8[], $2::bytea[])"              \
                 " AS k(resource, field)"                                                          \
                 " WHERE f.resource = k.resource AND f.field = k.field"))                          \
    X(PUT_RECEIPTS,                                                                                \
      PG_CHANGES("receipt", PG_EACH, "true",                                                       \
                 "INSERT INTO stockade.receipt(resource, id, token, fingerprint, resp3,"           \
                 " reply, written_ms) SELECT *, $7::int8 FROM unnest($1::int8[],"                  \
                 " $2::bytea[], $3::int8[], $4::int8[], $5::bool[], $6::bytea[])"                  \
                 " ON CONFLICT (resource, id) DO UPDATE SET token = excluded.token,"               \
                 " fingerprint = excluded.fingerprint, resp3 = excluded.resp3,"                    \
                 " reply = excluded.reply, written_ms = excluded.written_ms"))                     \
    X(REMOVE_RECEIPTS,                                                                             \
      PG_CHANGES("receipt",                                                                        \
                 "(SELECT count(*) FROM unnest($1, $2) AS k(resource, id) JOIN stockade.receipt "  \
                 "USING (resource, id))",                                                          \
                 "true",                                                                           \
                 "DELETE FROM stockade.receipt r USING unnest($1::int8[], $2::bytea[])"            \
                 " AS k(resource, id) WHERE r.resource = k.resource AND r.id = k.id"))             \
    X(RETIRE, PG_CHANGES("retired", PG_EACH, "true",                                               \
                         "INSERT INTO stockade.retired(resource, token, retired_ms)"               \
                         " SELECT *, $3::int8 FROM unnest($1::int8[], $2::int8[])"))               \
    /* Marks, which tell what became of a transaction: its mark is there, or, once voided,         \
     * never will be. */                                                                           \
    X(MARK, PG_CHANGES("mark", "1", "NOT void",                                                    \
                       "INSERT INTO stockade.mark(session, number, written_ms, void)"              \
                       " VALUES($1, $2, $3, false)"))                                              \
    X(MARK_VOID, "INSERT INTO stockade.mark(session, number, written_ms, void)"                    \
                 " VALUES($1, $2, $3, true)"                                                       \
                 " ON CONFLICT (session, number) DO UPDATE SET void = mark.void"                   \
                 " RETURNING void")                                                                \
    X(MARKS_PRUNE, "DELETE FROM stockade.mark WHERE session = $1 AND number < $2"                  \
                   " AND number % 4 = $2 % 4")                                                     \
    X(MARKS_FORGET, "DELETE FROM stockade.mark WHERE written_ms < $1")                             \
    /* For the watch. */                                                                           \
    X(LISTEN_QUICKLY, "SET synchronous_commit = off")                                              \
    X(LISTEN, "LISTEN stockade_freed")                                                             \
    X(NOTIFY, "SELECT pg_notify('stockade_freed', encode(n, 'hex'))"                               \
              " FROM unnest($1::bytea[]) AS names(n)")                                             \
    X(HOLDER, PG_HOLDER_COLUMNS                                                                    \
      " FROM pg_locks w"                                                                           \
      " JOIN pg_locks l ON l.transactionid = w.transactionid AND l.granted"                        \
      " LEFT JOIN pg_stat_activity a ON a.pid = l.pid"                                             \
      " LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid"                          \
      " WHERE w.locktype = 'transactionid' AND NOT w.granted AND (w.pid = $1::int8"                \
      " OR w.pid = ANY(pg_blocking_pids($1::int8::int4))) LIMIT 1")                                \
    X(CANCEL, "SELECT pg_cancel_backend($1::int8::int4)")                                          \
    X(HOLDER_END, "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a"                     \
                  " WHERE a.pid = $1::int8 AND " PG_HOLDER_STATE " = $2::int8"                     \
                  " AND " PG_HOLDER_OURS " AND " PG_HOLDER_STANDS)                                 \
    X(OLDEST_SNAPSHOT, "SELECT coalesce((SELECT x::text::int8 FROM (SELECT backend_xmin"           \
                       " FROM pg_stat_activity WHERE pid <> pg_backend_pid() UNION ALL"            \
                       " SELECT xmin FROM pg_replication_slots UNION ALL"                          \
                       " SELECT transaction FROM pg_prepared_xacts) AS all_of(x)"                  \
                       " WHERE x IS NOT NULL ORDER BY age(x) DESC LIMIT 1), 0)")                   \
    /* A commit of our own: once it is replicated, all that was seen before is, too. */            \
    X(BARRIER, "SELECT CASE WHEN stockade.is_replicated()"                                         \
               " THEN pg_logical_emit_message(true, 'stockade', '') END")                          \
    /* For the primitives that go past the working set. */                                         \
    X(EACH_LIVE, "SELECT id, name, type::int8 FROM stockade.resource"                              \
                 " WHERE id > $1 AND state = 1 AND token > (SELECT ended FROM stockade.meta)"      \
                 " ORDER BY id" PG_LIMIT)                                                          \
    X(EACH_KEY, "SELECT id, name, type::int8 FROM stockade.resource"                               \
                " WHERE id > $1 AND type <> 0 ORDER BY id" PG_LIMIT)                               \
    X(COUNT_LIVE, "SELECT count(*) FROM stockade.resource"                                         \
                  " WHERE state = 1 AND token > (SELECT ended FROM stockade.meta)")                \
    X(COUNT_KEYS, "SELECT count(*) FROM stockade.resource WHERE type <> 0")                        \
    /* The server knows the sizes of values without reading them. */                               \
    X(EACH_FIELD,                                                                                  \
      "SELECT field, value FROM (SELECT field, value,"                                             \
      " sum(octet_length(value)) OVER (ORDER BY field) - octet_length(value) AS before"            \
      " FROM stockade.field WHERE resource = $1 AND field >= $2 ORDER BY field" PG_LIMIT           \
      ") AS page WHERE before < " PG_PAGE_BYTES_TEXT " ORDER BY field")                            \
    X(EACH_RECEIPT, "SELECT id, token, fingerprint, resp3, written_ms, reply"                      \
                    " FROM stockade.receipt WHERE resource = $1"                                   \
                    " ORDER BY token DESC, id DESC" PG_LIMIT)                                      \
    X(RETIRED_FIRST, "SELECT number, resource, token FROM stockade.retired"                        \
                     " WHERE retired_ms < $1 ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED")      \
    X(RETIRED_DUE, "SELECT EXISTS(SELECT FROM stockade.retired WHERE retired_ms < $1"              \
                   " AND number = (SELECT min(number) FROM stockade.retired))")                    \
    X(RETIRED_REMOVE, "DELETE FROM stockade.retired WHERE number = $1")                            \
    /* Gives false where the row is locked. */                                                     \
    X(RECEIPTS_GONE, "WITH mine AS (SELECT id FROM stockade.resource WHERE id = $1"                \
                     " FOR NO KEY UPDATE SKIP LOCKED), gone AS (UPDATE stockade.resource"          \
                     " SET receipts_gone = greatest(receipts_gone, $2)"                            \
                     " WHERE id IN (SELECT id FROM mine))"                                         \
                     " SELECT EXISTS(SELECT FROM mine)"                                            \
                     " OR NOT EXISTS(SELECT FROM stockade.resource WHERE id = $1)")                \
    X(RECEIPTS_REMOVE, "DELETE FROM stockade.receipt WHERE resource = $1 AND id IN ("              \
                       "SELECT id FROM stockade.receipt WHERE resource = $1 AND token = $2"        \
                       " ORDER BY id LIMIT $3)")                                                   \
    X(SWEEP_END, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM stockade.resource"              \
                 " WHERE id > $1 ORDER BY id LIMIT $2) AS next")                                   \
    X(SWEEP_DUE,                                                                                   \
      "SELECT EXISTS(SELECT FROM stockade.resource r WHERE id > $1 AND id <= $2"                   \
      " AND type = 0 AND changed_ms < CASE state WHEN 1 THEN $3::int8 ELSE $4::int8 END"           \
      " AND (state = 1 OR NOT EXISTS("                                                             \
      "SELECT FROM stockade.receipt WHERE resource = r.id)))")                                     \
    X(SWEEP_RETIRE, "WITH gone AS (UPDATE stockade.resource SET state = 3, holds = 0,"             \
                    " changed_ms = $4::int8, changes = changes + 1, waited = false WHERE id IN"    \
                    " (SELECT id FROM stockade.resource r"                                         \
                    " WHERE id > $1 AND id <= $2 AND type = 0 AND state = 1 AND changed_ms < $3"   \
                    " AND EXISTS(SELECT FROM stockade.receipt WHERE resource = r.id)"              \
                    " FOR NO KEY UPDATE SKIP LOCKED) RETURNING id, token)"                         \
                    " INSERT INTO stockade.retired(resource, token, retired_ms)"                   \
                    " SELECT id, token, $4::int8 FROM gone")                                       \
    X(SWEEP_REMOVE,                                                                                \
      "WITH gone AS (DELETE FROM stockade.resource WHERE id IN ("                                  \
      "SELECT id FROM stockade.resource r WHERE id > $1 AND id <= $2 AND type = 0"                 \
      " AND changed_ms < CASE state WHEN 1 THEN $3::int8 ELSE $4::int8 END AND NOT EXISTS("        \
      "SELECT FROM stockade.receipt WHERE resource = r.id)"                                        \
      " FOR UPDATE SKIP LOCKED) RETURNING token)"                                                  \
      " SELECT count(*), coalesce(max(token), 0) FROM gone")                                       \
    X(FLOOR_RAISE, "UPDATE stockade.meta SET floor = greatest(floor, $1)")                         \
    /* A step of a flush begins behind $1, and goes at most up to $2. This finds its end: $3       \
     * rows further, or fewer rows that have many fields. */                                       \
    X(FLUSH_UNTIL, "SELECT coalesce(max(id), 0) FROM stockade.resource")                           \
    X(FLUSH_END,                                                                                   \
      "SELECT coalesce(max(id), $2) FROM (SELECT id, sum(1 + fields) OVER (ORDER BY id"            \
      " ROWS UNBOUNDED PRECEDING) - (1 + fields) AS before FROM (SELECT id, fields"                \
      " FROM stockade.resource WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3) AS next)"          \
      " AS counted WHERE before < $3")                                                             \
    /* Lock the next rows that have a value or a live lease, up to $3 of them; of rows that        \
     * somebody else has locked, give the name. */                                                 \
    X(FLUSH_LOCK,                                                                                  \
      "WITH next AS MATERIALIZED (SELECT id, name FROM stockade.resource"                          \
      " WHERE id > $1 AND id <= $2 AND (type <> 0 OR state = 1) ORDER BY id LIMIT $3),"            \
      " mine AS MATERIALIZED (SELECT id FROM stockade.resource WHERE id > $1 AND id <= $2"         \
      " AND id IN (SELECT id FROM next) AND (type <> 0 OR state = 1) ORDER BY id"                  \
      " FOR NO KEY UPDATE SKIP LOCKED) SELECT next.id,"                                            \
      " CASE WHEN mine.id IS NULL THEN name END AS kept"                                           \
      " FROM next LEFT JOIN mine USING (id) ORDER BY next.id")                                     \
    X(REVOKE_ALL, "UPDATE stockade.resource SET state = 3, holds = 0, changed_ms = $1::int8,"      \
                  " changes = changes + 1, waited = false WHERE state = 1")                        \
    X(RETIRE_ALL, PG_RETIRE("$1"))                                                                 \
    /* These change the rows that were locked, and no others: what was made or filled since        \
     * is newer than the flush. */                                                                 \
    X(FLUSH_FIELDS, "DELETE FROM stockade.field WHERE resource = ANY($1)")                         \
    X(FLUSH_RETIRE, PG_RETIRE("$2") " AND id = ANY($1)")                                           \
    X(FLUSH_RESOURCES, "UPDATE stockade.resource SET type = 0, value = NULL, fields = 0,"          \
                       " holds = 0, waited = false, changes = changes + 1,"                        \
                       " changed_ms = CASE state WHEN 1 THEN $2::int8 ELSE changed_ms END,"        \
                       " state = CASE state WHEN 1 THEN 3 ELSE state END WHERE id = ANY($1)")      \
    X(SAVEPOINT, "SAVEPOINT stockade_savepoint")                                                   \
    X(SAVEPOINT_KEEP, "RELEASE SAVEPOINT stockade_savepoint")                                      \
    X(SAVEPOINT_UNDO, "ROLLBACK TO SAVEPOINT stockade_savepoint")                                  \
    /* Give NULL, or why it was refused. */                                                        \
    X(GUARD_CREATE, "SELECT stockade.guard_try($1, $2, $3, $4)")                                   \
    X(GUARD_DROP, "SELECT stockade.guard_try($1, NULL, NULL)")                                     \
    /* With the name of the table by which GUARD DROP finds the guard. */                          \
    X(GUARDS, "SELECT coalesce(stockade.table_name(relation), name), key, prefix,"                 \
              " coalesce(stockade.guard_takes(g), ''),"                                            \
              " coalesce((SELECT string_agg(problem, '; ') FROM stockade.guard_flaws() f"          \
              " WHERE f.id = g.id), '') FROM stockade.guard g ORDER BY 1, id")                     \
    X(REFUSALS, "SELECT number, code, name, token, newest FROM stockade.refusals($1)")             \
    X(GUARD_BROKEN, "SELECT format('the guard of table %s is broken: %s', name, problem)"          \
                    " FROM stockade.guard g JOIN stockade.guard_flaws() f USING (id)"              \
                    " WHERE EXISTS(SELECT FROM stockade.guard) ORDER BY id, kind LIMIT 1")         \
    /* For users' SQL (sql.c). The settings that a statement changes are set back after it. */     \
    X(SQL_READS, "SAVEPOINT stockade_reads")                                                       \
    X(SQL_READ_ONLY, "SET LOCAL transaction_read_only = on")                                       \
    X(SQL_READS_END, "RELEASE SAVEPOINT stockade_reads")                                           \
    X(SQL_PATH, "SET LOCAL search_path TO DEFAULT")                                                \
    X(SQL_PRESENT, "SELECT stockade.present(name, token)"                                          \
                   " FROM unnest($1::bytea[], $2::int8[]) AS c(name, token)")                      \
    X(SQL_LIMITS, "SELECT set_config('statement_timeout', $1::int8::text, true),"                  \
                  " set_config('lock_timeout', '0', true),"                                        \
                  " set_config('plan_cache_mode', 'auto', true),"                                  \
                  " set_config('enable_seqscan', 'on', true),"                                     \
                  " set_config('enable_bitmapscan', 'on', true), set_config('role',"               \
                  " CASE $2::int8 WHEN 1 THEN session_user::text ELSE 'none' END, true)")          \
    X(SQL_OPEN, "SELECT stockade.sql_open($1, $2, $3, $4)")                                        \
    X(SQL_FETCH, "SELECT line FROM stockade.sql_fetch(1000, 1048576) AS line")                     \
    X(SQL_RESET, "RESET ALL")                                                                      \
    X(SQL_SETTLE, "SELECT " PG_SETTINGS)                                                           \
    /* Has a definition locked a table that is guarded, or was guarded before it? */               \
    X(SQL_TREES, "SELECT coalesce(array_agg(t.relation::oid), '{}')::text,"                        \
                 " coalesce(array_agg(g.name), '{}')::text"                                        \
                 " FROM stockade.guard g, stockade.tree(g.relation) t")                            \
    X(SQL_GUARDED, "SELECT name FROM (SELECT t.relation::oid, g.name FROM stockade.guard g,"       \
                   " stockade.tree(g.relation) t UNION ALL"                                        \
                   " SELECT * FROM unnest($1::text::oid[], $2::text::text[])) AS of(relation, "    \
                   "name) WHERE relation IN (SELECT relation FROM pg_locks"                        \
                   " WHERE pid = pg_backend_pid() AND mode IN ('AccessExclusiveLock',"             \
                   " 'ShareRowExclusiveLock')) LIMIT 1")                                           \
    X(SQL_UNLOCK, "SELECT pg_advisory_unlock_all()")                                               \
    X(SQL_FORGET, "DISCARD SEQUENCES") /* lastval() */                                             \
    X(SQL_UNLISTEN, "UNLISTEN *")                                                                  \
    X(SQL_SET_UP, "SELECT stockade.sql_set_up()")                                                  \
    X(AUDIT, "SELECT lines, hash, identity <> stockade.identity() FROM stockade.audit"             \
             " WHERE chain = $1")                                                                  \
    X(AUDIT_PUT,                                                                                   \
      "INSERT INTO stockade.audit(chain, lines, hash, identity)"                                   \
      " VALUES($1, $2, $3, stockade.identity()) ON CONFLICT (chain) DO UPDATE"                     \
      " SET lines = excluded.lines, hash = excluded.hash, identity = excluded.identity")

enum pg_statement {
#define X(name, sql) PG_##name,
    PG_STATEMENT_MAP(X)
#undef X
        PG_STATEMENTS
};

#endif
