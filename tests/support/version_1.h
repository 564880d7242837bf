/* SPDX-License-Identifier: Apache-2.0 */
/* A store file of schema version 1, without rows, as the first stockaded made it: what is brought
 * up to date in the tests of migration. */
#ifndef STOCKADE_TESTS_SUPPORT_VERSION_1_H
#define STOCKADE_TESTS_SUPPORT_VERSION_1_H

static const char version_1[] =
    "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA application_id = 1398033220;"
    "CREATE TABLE stockade_meta("
    "  key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO stockade_meta VALUES('session', 0), ('floor', 0);"
    "CREATE TABLE stockade_resource("
    "  id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE,"
    "  token INTEGER NOT NULL DEFAULT 0, state INTEGER NOT NULL DEFAULT 0,"
    "  type INTEGER NOT NULL DEFAULT 0, holds INTEGER NOT NULL DEFAULT 0,"
    "  ttl_ms INTEGER NOT NULL DEFAULT 0, session INTEGER NOT NULL DEFAULT 0,"
    "  connection INTEGER NOT NULL DEFAULT 0, anonymous INTEGER NOT NULL DEFAULT 0,"
    "  owner BLOB NOT NULL DEFAULT x'');"
    "CREATE INDEX stockade_keys ON stockade_resource(id, type) WHERE type <> 0;"
    "CREATE TABLE stockade_string("
    "  id INTEGER PRIMARY KEY, value BLOB NOT NULL);"
    "CREATE TABLE stockade_hash("
    "  id INTEGER NOT NULL, field BLOB NOT NULL, value BLOB NOT NULL,"
    "  PRIMARY KEY(id, field)) WITHOUT ROWID;"
    "CREATE VIEW stockade_fences(resource, token, state, owner, holds, ttl_ms) AS"
    "  SELECT CAST(name AS TEXT), token,"
    "    CASE state WHEN 1 THEN 'live' WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,"
    "    CAST(owner AS TEXT), holds, ttl_ms"
    "  FROM stockade_resource WHERE state <> 0;"
    "CREATE VIEW stockade_values(key, value) AS"
    "  SELECT CAST(name AS TEXT), CAST(value AS TEXT)"
    "  FROM stockade_string JOIN stockade_resource USING(id);"
    "CREATE VIEW stockade_fields(key, field, value) AS"
    "  SELECT CAST(name AS TEXT), CAST(field AS TEXT), CAST(value AS TEXT)"
    "  FROM stockade_hash JOIN stockade_resource USING(id);"
    "PRAGMA user_version = 1;";

#endif
