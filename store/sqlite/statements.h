/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL that Stockade itself runs on its tables, by name. */
#ifndef STOCKADE_STORE_SQLITE_STATEMENTS_H
#define STOCKADE_STORE_SQLITE_STATEMENTS_H

#define STATEMENT_MAP(X)                                                                           \
    X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                              \
    X(BEGIN_READ, "BEGIN")                                                                         \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(SAVEPOINT, "SAVEPOINT stockade_savepoint")                                                   \
    X(SAVEPOINT_KEEP, "RELEASE stockade_savepoint")                                                \
    X(SAVEPOINT_UNDO, "ROLLBACK TO stockade_savepoint")                                            \
    X(DATA_VERSION, "PRAGMA data_version")                                                         \
    X(FLOOR, "SELECT value FROM stockade_meta WHERE key = 'floor'")                                \
    X(FIND, "SELECT id, token, state, type FROM stockade_resource WHERE name = ?1")                \
    X(MAKE, "INSERT OR IGNORE INTO stockade_resource(name, changed_ms, receipts_gone)"             \
            " VALUES(?1, ?2, ?3)")                                                                 \
    X(TYPE, "UPDATE stockade_resource SET type = ?2 WHERE id = ?1")                                \
    X(FENCE, "UPDATE stockade_resource SET token = ?2, state = ?3, holds = ?4, ttl_ms = ?5,"       \
             " session = ?6, connection = ?7, anonymous = ?8, owner = ?9, changed_ms = ?10"        \
             " WHERE id = ?1 AND token <= ?2")                                                     \
    X(FENCE_MAKE, "INSERT OR IGNORE INTO stockade_resource(name, token, state, holds, ttl_ms,"     \
                  " session, connection, anonymous, owner, changed_ms, receipts_gone)"             \
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")                         \
    X(FENCE_OF, "SELECT token, state FROM stockade_resource WHERE id = ?1")                        \
    X(LEASE, "SELECT holds, ttl_ms, session, connection, anonymous, owner, changed_ms,"            \
             " receipts_gone"                                                                      \
             " FROM stockade_resource WHERE id = ?1")                                              \
    X(EACH_LIVE, "SELECT id, name, type FROM stockade_resource"                                    \
                 " WHERE id > ?1 AND state = 1 ORDER BY id")                                       \
    X(EACH_KEY, "SELECT id, name, type FROM stockade_resource"                                     \
                " WHERE id > ?1 AND type <> 0 ORDER BY id")                                        \
    X(COUNT_LIVE, "SELECT count(*) FROM stockade_resource WHERE state = 1")                        \
    X(COUNT_KEYS, "SELECT count(*) FROM stockade_resource WHERE type <> 0")                        \
    X(STRING, "SELECT value FROM stockade_string WHERE id = ?1")                                   \
    X(STRING_PUT, "REPLACE INTO stockade_string(id, value) VALUES(?1, ?2)")                        \
    X(STRING_CLEAR, "DELETE FROM stockade_string WHERE id = ?1")                                   \
    X(FIELD, "SELECT value FROM stockade_hash WHERE id = ?1 AND field = ?2")                       \
    X(FIELD_PUT, "REPLACE INTO stockade_hash(id, field, value) VALUES(?1, ?2, ?3)")                \
    X(FIELD_REMOVE, "DELETE FROM stockade_hash WHERE id = ?1 AND field = ?2")                      \
    X(FIELD_ANY, "SELECT EXISTS(SELECT 1 FROM stockade_hash WHERE id = ?1)")                       \
    X(EACH_FIELD, "SELECT field, value FROM stockade_hash"                                         \
                  " WHERE id = ?1 AND field >= ?2 ORDER BY field")                                 \
    X(COUNT_FIELDS, "SELECT count(*) FROM stockade_hash WHERE id = ?1")                            \
    X(HASH_CLEAR, "DELETE FROM stockade_hash WHERE id = ?1")                                       \
    X(FLUSH_UNTIL, "SELECT max(id) FROM stockade_resource")                                        \
    /* The end of a step behind ?1: after ?2 rows, or fewer with many fields. */                   \
    X(FLUSH_END, "SELECT max(id) FROM (SELECT r.id FROM stockade_resource AS r"                    \
                 " LEFT JOIN stockade_hash AS h ON h.id = r.id WHERE r.id > ?1"                    \
                 " ORDER BY r.id LIMIT ?2)")                                                       \
    X(FLUSH_STRINGS, "DELETE FROM stockade_string WHERE id > ?1 AND id <= ?2")                     \
    X(FLUSH_HASHES, "DELETE FROM stockade_hash WHERE id > ?1 AND id <= ?2")                        \
    X(FLUSH_RESOURCES, "UPDATE stockade_resource SET type = 0, holds = 0,"                         \
                       " changed_ms = CASE state WHEN 1 THEN ?3 ELSE changed_ms END,"              \
                       " state = CASE state WHEN 1 THEN 3 ELSE state END"                          \
                       " WHERE id > ?1 AND id <= ?2 AND (type <> 0 OR state = 1)")                 \
    /* Receipts, and the log of retired tokens that have some. */                                  \
    X(RECEIPT, "SELECT token, fingerprint, resp3, reply, written_ms FROM stockade_receipt"         \
               " WHERE resource = ?1 AND id = ?2")                                                 \
    X(EACH_RECEIPT, "SELECT token, fingerprint, resp3, reply, written_ms, id"                      \
                    " FROM stockade_receipt INDEXED BY stockade_receipt_token"                     \
                    " WHERE resource = ?1 ORDER BY token DESC, id DESC")                           \
    X(RECEIPT_PUT,                                                                                 \
      "INSERT OR IGNORE INTO stockade_receipt(resource, id, token, fingerprint, resp3,"            \
      " reply, written_ms) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                    \
    X(RECEIPT_REMOVE, "DELETE FROM stockade_receipt WHERE resource = ?1 AND id = ?2")              \
    X(RECEIPTS_ANY, "SELECT EXISTS(SELECT 1 FROM stockade_receipt"                                 \
                    " WHERE resource = ?1 AND token = ?2)")                                        \
    X(RETIRE_ALL, "INSERT INTO stockade_retired(resource, token, retired_ms)"                      \
                  " SELECT id, token, ?3 FROM stockade_resource AS r"                              \
                  " WHERE id > ?1 AND id <= ?2 AND state = 1 AND EXISTS("                          \
                  "SELECT 1 FROM stockade_receipt WHERE resource = r.id AND token = r.token)"      \
                  " ORDER BY id")                                                                  \
    X(RETIRED_ADD, "INSERT INTO stockade_retired(resource, token, retired_ms)"                     \
                   " VALUES(?1, ?2, ?3)")                                                          \
    X(RETIRED_FIRST, "SELECT number, resource, token, retired_ms FROM stockade_retired"            \
                     " ORDER BY number LIMIT 1")                                                   \
    X(RETIRED_REMOVE, "DELETE FROM stockade_retired WHERE number = ?1")                            \
    X(RECEIPTS_GONE, "UPDATE stockade_resource SET receipts_gone = ?2"                             \
                     " WHERE id = ?1 AND receipts_gone < ?2")                                      \
    X(RECEIPTS_REMOVE,                                                                             \
      "DELETE FROM stockade_receipt WHERE resource = ?1 AND id IN ("                               \
      "SELECT id FROM stockade_receipt WHERE resource = ?1 AND token = ?2 ORDER BY id LIMIT ?3)")  \
    /* Resources that are of no use any more, between two ids. */                                  \
    X(SWEEP_END, "SELECT max(id) FROM ("                                                           \
                 "SELECT id FROM stockade_resource WHERE id > ?1 ORDER BY id LIMIT ?2)")           \
    X(SWEEP_RETIRE,                                                                                \
      "UPDATE stockade_resource SET state = 3, holds = 0, changed_ms = ?4"                         \
      " WHERE id > ?1 AND id <= ?2 AND type = 0 AND state = 1 AND changed_ms < ?3"                 \
      " AND EXISTS(SELECT 1 FROM stockade_receipt WHERE resource = stockade_resource.id)"          \
      " RETURNING id, token")                                                                      \
    X(SWEEP_REMOVE,                                                                                \
      "DELETE FROM stockade_resource WHERE id > ?1 AND id <= ?2"                                   \
      " AND id < (SELECT max(id) FROM stockade_resource) AND type = 0"                             \
      " AND changed_ms < CASE state WHEN 1 THEN ?3 ELSE ?4 END"                                    \
      " AND NOT EXISTS(SELECT 1 FROM stockade_receipt WHERE resource = stockade_resource.id)"      \
      " RETURNING id, token")                                                                      \
    X(SWEEP_DUE, "SELECT EXISTS(SELECT 1 FROM stockade_resource AS r WHERE id > ?1 AND id <= ?2"   \
                 " AND type = 0 AND changed_ms < CASE state WHEN 1 THEN ?3 ELSE ?4 END"            \
                 " AND CASE WHEN EXISTS(SELECT 1 FROM stockade_receipt WHERE resource = r.id)"     \
                 " THEN state = 1 ELSE id < (SELECT max(id) FROM stockade_resource) END)")         \
    X(CLOCK, "SELECT boot, offset_ms, reached_ms, wall_ms, start_ms FROM stockade_clock")          \
    X(CLOCK_PUT, "UPDATE stockade_clock SET boot = ?1, offset_ms = ?2, reached_ms = ?3,"           \
                 " wall_ms = ?4, start_ms = ?5")                                                   \
    X(CLOSED, "SELECT count(*) FROM stockade_meta WHERE key = 'move_part' AND value IN (1, 3)")    \
    X(AUDIT, "SELECT lines, hash, file <> (SELECT value FROM stockade_meta WHERE key = 'file')"    \
             " FROM stockade_audit WHERE chain = ?1")                                              \
    X(AUDIT_PUT, "REPLACE INTO stockade_audit(chain, lines, hash, file)"                           \
                 " SELECT ?1, ?2, ?3, value FROM stockade_meta WHERE key = 'file'")                \
    /* The store begins anew: anew.h. */                                                           \
    X(TOKEN_LARGEST, "SELECT max((SELECT ifnull(max(token), 0) FROM stockade_resource"             \
                     " WHERE token < ?1), (SELECT value FROM stockade_meta WHERE key = 'floor'))") \
    X(FLOOR_PUT, "REPLACE INTO stockade_meta(key, value) VALUES('floor', ?1)")                     \
    X(END_ALL, "UPDATE stockade_resource SET state = 3, holds = 0, changed_ms = ?1"                \
               " WHERE state = 1")                                                                 \
    X(FILE_ANEW, "UPDATE stockade_meta SET value = randomblob(16) WHERE key = 'file'")             \
    X(FLOOR_RAISE, "UPDATE stockade_meta SET value = ?1 WHERE key = 'floor' AND value < ?1")

#endif
