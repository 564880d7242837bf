/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL that Stockade itself runs on its tables, by name. */
#ifndef STOCKADE_STORE_SQLITE_STATEMENTS_H
#define STOCKADE_STORE_SQLITE_STATEMENTS_H

#define STATEMENT_MAP(X)                                                                           \
    X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                              \
    X(BEGIN_READ, "BEGIN")                                                                         \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(DATA_VERSION, "PRAGMA data_version")                                                         \
    X(FLOOR, "SELECT value FROM stockade_meta WHERE key = 'floor'")                                \
    X(FIND, "SELECT id, token, state, type FROM stockade_resource WHERE name = ?1")                \
    X(MAKE, "INSERT OR IGNORE INTO stockade_resource(name) VALUES(?1)")                            \
    X(TYPE, "UPDATE stockade_resource SET type = ?2 WHERE id = ?1")                                \
    X(FENCE, "UPDATE stockade_resource SET token = ?2, state = ?3, holds = ?4, ttl_ms = ?5,"       \
             " session = ?6, connection = ?7, anonymous = ?8, owner = ?9"                          \
             " WHERE id = ?1 AND token <= ?2")                                                     \
    X(LEASE, "SELECT holds, ttl_ms, session, connection, anonymous, owner"                         \
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
    X(FLUSH_STRINGS, "DELETE FROM stockade_string")                                                \
    X(FLUSH_HASHES, "DELETE FROM stockade_hash")                                                   \
    X(FLUSH_RESOURCES, "UPDATE stockade_resource SET type = 0, holds = 0,"                         \
                       " state = CASE state WHEN 1 THEN 3 ELSE state END"                          \
                       " WHERE type <> 0 OR state = 1")

enum statement {
#define X(name, sql) STATEMENT_##name,
    STATEMENT_MAP(X)
#undef X
        STATEMENTS
};

#endif
