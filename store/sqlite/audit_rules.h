/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the rows of Stockade's own tables, as SQL that finds those of which it does
 * not. Each statement gives, for every row at fault, what it is about (a name or an id; NULL:
 * nothing in particular) and what is wrong with it. X(kind, version of the schema it needs, sql) */
#ifndef STOCKADE_STORE_SQLITE_AUDIT_RULES_H
#define STOCKADE_STORE_SQLITE_AUDIT_RULES_H

/* 1 .. 2^53-1, as in fence/token.h. */
#define AUDIT_TOKEN_MAX "9007199254740991"

#define AUDIT_RULE_MAP(X)                                                                          \
    X("schema", 1,                                                                                 \
      "SELECT NULL, 'stockade_meta has no usable ' || k.column1 || ': ' || quote(m.value)"         \
      " FROM (VALUES('session', 1), ('floor', 0)) AS k LEFT JOIN stockade_meta AS m"               \
      " ON m.key = k.column1 WHERE typeof(m.value) IS NOT 'integer'"                               \
      " OR m.value NOT BETWEEN k.column2 AND " AUDIT_TOKEN_MAX)                                    \
    X("schema", 2,                                                                                 \
      "SELECT NULL, 'stockade_meta has no usable mark of the file'"                                \
      " WHERE (SELECT typeof(value) || length(value) FROM stockade_meta WHERE key = 'file')"       \
      " IS NOT 'blob16'")                                                                          \
    X("schema", 3,                                                                                 \
      "SELECT NULL, 'stockade_clock has ' || count(*) || ' rows that can be used, not 1'"          \
      " FROM stockade_clock WHERE typeof(boot) = 'text' AND typeof(offset_ms) = 'integer'"         \
      " AND typeof(reached_ms) = 'integer' AND typeof(wall_ms) = 'integer'"                        \
      " AND typeof(start_ms) = 'integer' HAVING count(*) <> 1")                                    \
    X("fence", 1,                                                                                  \
      "SELECT id, 'its name is ' || typeof(name) || ' of ' || length(name) || ' bytes'"            \
      " FROM stockade_resource WHERE typeof(name) <> 'blob' OR length(name) NOT BETWEEN 1 AND 512" \
      " OR id <= 0")                                                                               \
    X("fence", 1,                                                                                  \
      "SELECT name, count(*) || ' resources have this name' FROM stockade_resource"                \
      " GROUP BY name HAVING count(*) > 1")                                                        \
    X("fence", 1,                                                                                  \
      "SELECT name, 'its token is ' || quote(token) || ', not one of 1 to " AUDIT_TOKEN_MAX "'"    \
      " FROM stockade_resource WHERE typeof(token) <> 'integer'"                                   \
      " OR token NOT BETWEEN 0 AND " AUDIT_TOKEN_MAX)                                              \
    X("fence", 1,                                                                                  \
      "SELECT name, 'its state is ' || quote(state) || ', and its token ' || quote(token)"         \
      " FROM stockade_resource WHERE typeof(state) <> 'integer' OR state NOT BETWEEN 0 AND 3"      \
      " OR (state = 0) <> (token = 0)")                                                            \
    X("fence", 1,                                                                                  \
      "SELECT name, 'it is held ' || quote(holds) || ' times in state ' || quote(state)"           \
      " FROM stockade_resource WHERE typeof(holds) <> 'integer'"                                   \
      " OR (state = 1 AND holds < 1) OR (state <> 1 AND holds <> 0)")                              \
    X("fence", 1,                                                                                  \
      "SELECT name, 'its lease has a TTL of ' || quote(ttl_ms) || ' ms, connection '"              \
      " || quote(connection) || ', and ' || typeof(owner) || ' of ' || length(owner)"              \
      " || ' bytes for an owner' FROM stockade_resource"                                           \
      " WHERE typeof(ttl_ms) <> 'integer' OR ttl_ms NOT BETWEEN 0 AND 86400000"                    \
      " OR typeof(connection) <> 'integer' OR connection < 0 OR anonymous NOT IN (0, 1)"           \
      " OR typeof(owner) <> 'blob' OR length(owner) > 512")                                        \
    X("fence", 1,                                                                                  \
      "SELECT name, 'it was granted in session ' || quote(session) || ', which has not been'"      \
      " FROM stockade_resource WHERE typeof(session) <> 'integer' OR session < 0"                  \
      " OR session > (SELECT value FROM stockade_meta WHERE key = 'session')")                     \
    X("fence", 2,                                                                                  \
      "SELECT name, 'its fence changed at ' || quote(changed_ms)"                                  \
      " FROM stockade_resource WHERE typeof(changed_ms) <> 'integer' OR changed_ms < 0")           \
    X("fence", 2,                                                                                  \
      "SELECT name, 'receipts up to token ' || quote(receipts_gone) || ' are gone, and its token"  \
      " is ' || quote(token) FROM stockade_resource WHERE typeof(receipts_gone) <> 'integer'"      \
      " OR receipts_gone < 0 OR receipts_gone > max(token,"                                        \
      " (SELECT value FROM stockade_meta WHERE key = 'floor'))")                                   \
    X("value", 1,                                                                                  \
      "SELECT name, 'its type is ' || quote(type) || ', and it has '"                              \
      " || (SELECT count(*) FROM stockade_string AS s WHERE s.id = r.id) || ' strings and '"       \
      " || (SELECT count(*) FROM stockade_hash AS h WHERE h.id = r.id) || ' fields'"               \
      " FROM stockade_resource AS r WHERE typeof(type) <> 'integer' OR type NOT BETWEEN 0 AND 2"   \
      " OR (type = 1) <> EXISTS(SELECT 1 FROM stockade_string AS s WHERE s.id = r.id)"             \
      " OR (type = 2) <> EXISTS(SELECT 1 FROM stockade_hash AS h WHERE h.id = r.id)")              \
    X("value", 1,                                                                                  \
      "SELECT id, 'a string of a resource that is not there' FROM stockade_string"                 \
      " WHERE id NOT IN (SELECT id FROM stockade_resource)")                                       \
    X("value", 1,                                                                                  \
      "SELECT id, count(*) || ' fields of a resource that is not there' FROM stockade_hash"        \
      " WHERE id NOT IN (SELECT id FROM stockade_resource) GROUP BY id")                           \
    X("value", 1,                                                                                  \
      "SELECT id, 'its string is ' || typeof(value) FROM stockade_string"                          \
      " WHERE typeof(value) <> 'blob'")                                                            \
    X("value", 1,                                                                                  \
      "SELECT id, 'a field is ' || typeof(field) || ' of ' || length(field) || ' bytes, its"       \
      " value ' || typeof(value) FROM stockade_hash WHERE typeof(field) <> 'blob'"                 \
      " OR length(field) NOT BETWEEN 1 AND 512 OR typeof(value) <> 'blob'")                        \
    X("receipt", 2,                                                                                \
      "SELECT resource, count(*) || ' receipts of a resource that is not there'"                   \
      " FROM stockade_receipt WHERE resource NOT IN (SELECT id FROM stockade_resource)"            \
      " GROUP BY resource")                                                                        \
    X("receipt", 2,                                                                                \
      "SELECT r.name, 'a receipt of token ' || quote(t.token) || ', and its token is '"            \
      " || quote(r.token) FROM stockade_receipt AS t JOIN stockade_resource AS r"                  \
      " ON r.id = t.resource WHERE typeof(t.token) <> 'integer'"                                   \
      " OR t.token NOT BETWEEN 1 AND r.token")                                                     \
    X("receipt", 2,                                                                                \
      "SELECT resource, 'a receipt with an ID that is ' || typeof(id) || ' of ' || length(id)"     \
      " || ' bytes and a reply that is ' || typeof(reply) || ', written at ' || quote(written_ms)" \
      " FROM stockade_receipt WHERE typeof(id) <> 'blob' OR length(id) NOT BETWEEN 1 AND 512"      \
      " OR typeof(reply) <> 'blob' OR typeof(fingerprint) <> 'integer' OR resp3 NOT IN (0, 1)"     \
      " OR typeof(written_ms) <> 'integer' OR written_ms < 0")                                     \
    X("receipt", 2,                                                                                \
      "SELECT r.name, 'receipts of token ' || t.token || ', which has ended, would never be"       \
      " removed' FROM (SELECT DISTINCT resource, token FROM stockade_receipt) AS t"                \
      " JOIN stockade_resource AS r ON r.id = t.resource"                                          \
      " WHERE (r.state <> 1 OR t.token <> r.token) AND (t.resource, t.token) NOT IN"               \
      " (SELECT resource, token FROM stockade_retired)")                                           \
    /* A resource that was forgotten may still be named here, one that never was may not. */       \
    X("receipt", 2,                                                                                \
      "SELECT resource, 'token ' || quote(token) || ' of it ended at ' || quote(retired_ms)"       \
      " || ', as if it had been granted' FROM stockade_retired"                                    \
      " WHERE resource NOT BETWEEN 1 AND (SELECT ifnull(max(id), 0) FROM stockade_resource)"       \
      " OR typeof(token) <> 'integer' OR token NOT BETWEEN 1 AND " AUDIT_TOKEN_MAX                 \
      " OR typeof(retired_ms) <> 'integer' OR retired_ms < 0")

#endif
