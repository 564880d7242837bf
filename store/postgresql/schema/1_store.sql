-- SPDX-License-Identifier: Apache-2.0
-- The store itself: fences with their leases, values, receipts. Run once, in a transaction, by the
-- daemon that finds no schema. Released steps are never edited (schema.c).
--
-- Fence, lease and string are one row: a write makes one row version. Nothing refers to that row
-- by a foreign key, for that would lock it.

CREATE SCHEMA stockade;

-- One row. `replicated`: commits went to a synchronous standby when it was looked at last.
-- move_part: as enum transfer_part. 1, 3: a move keeps the store closed.
-- clock_*: by what the server's wall clock is corrected, and the number of the correction. noted_*:
-- the store's time when it was noted last, and the wall clock of whoever noted it (identity.c).
CREATE TABLE stockade.meta(
  one boolean PRIMARY KEY DEFAULT true CHECK(one),
  version int8 NOT NULL,
  session int8 NOT NULL DEFAULT 0,
  floor int8 NOT NULL DEFAULT 0,
  identity text,
  timeline text,
  replicated boolean NOT NULL DEFAULT false,
  move_part int2 NOT NULL DEFAULT 0,
  move_id text NOT NULL DEFAULT '',
  move_where text NOT NULL DEFAULT '',
  clock_ms int8 NOT NULL DEFAULT 0,
  clock_number int8 NOT NULL DEFAULT 0,
  noted_ms int8 NOT NULL DEFAULT 0,
  noted_wall_ms int8 NOT NULL DEFAULT 0);
INSERT INTO stockade.meta(version) VALUES(0);

-- Ids are taken in blocks.
CREATE SEQUENCE stockade.resource_id INCREMENT 1000;

-- state, type: as enum fence_state and enum value_type. changes: how often the fence was written.
-- waited: somebody at another daemon waits for the end of this lease.
CREATE TABLE stockade.resource(
  id int8 PRIMARY KEY,
  name bytea NOT NULL UNIQUE,
  token int8 NOT NULL,
  state int2 NOT NULL,
  type int2 NOT NULL,
  anonymous boolean NOT NULL,
  holds int8 NOT NULL,
  ttl_ms int8 NOT NULL,
  session int8 NOT NULL,
  connection int8 NOT NULL,
  changed_ms int8 NOT NULL,
  changes int8 NOT NULL DEFAULT 0,
  waited boolean NOT NULL DEFAULT false,
  receipts_gone int8 NOT NULL,
  receipts_token int8 NOT NULL,
  fields int8 NOT NULL,
  owner bytea NOT NULL,
  value bytea) WITH (fillfactor = 70);
CREATE INDEX resource_keys ON stockade.resource(id) WHERE type <> 0;

CREATE TABLE stockade.field(
  resource int8 NOT NULL,
  field bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY(resource, field)) WITH (fillfactor = 70);

CREATE TABLE stockade.receipt(
  resource int8 NOT NULL,
  id bytea NOT NULL,
  token int8 NOT NULL,
  fingerprint int8 NOT NULL,
  resp3 boolean NOT NULL,
  written_ms int8 NOT NULL,
  reply bytea NOT NULL,
  PRIMARY KEY(resource, id));
CREATE INDEX receipt_token ON stockade.receipt(resource, token, id);

-- Tokens with receipts, in the order in which they were retired.
CREATE TABLE stockade.retired(
  number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  resource int8 NOT NULL,
  token int8 NOT NULL,
  retired_ms int8 NOT NULL);

-- One for each transaction that changes something: was it committed?
CREATE TABLE stockade.mark(
  session int8,
  number int8,
  written_ms int8 NOT NULL,
  void boolean NOT NULL,
  PRIMARY KEY(session, number));

CREATE TABLE stockade.audit(
  chain text PRIMARY KEY,
  lines int8 NOT NULL,
  hash text NOT NULL,
  identity text NOT NULL);

-- Another system, database or table is another store, even where its rows are the same.
CREATE FUNCTION stockade.identity() RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
  SELECT concat_ws('/', system_identifier,
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    'stockade.resource'::regclass::oid) FROM pg_control_system()
$$;

-- So is another timeline, which a promoted standby begins. Its number is hexadecimal.
CREATE FUNCTION stockade.timeline() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
$$;

-- Whose clock it is: another server process, another timeline.
CREATE FUNCTION stockade.server() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.concat_ws('/', stockade.timeline(),
    extract(epoch FROM pg_catalog.pg_postmaster_start_time()))
$$;

-- The wall clock of the server.
CREATE FUNCTION stockade.now_ms() RETURNS int8 LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::int8
$$;

CREATE FUNCTION stockade.is_replicated() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.current_setting('synchronous_standby_names') <> ''
$$;

-- The public face: text where the bytes are UTF-8, else with escapes.
CREATE FUNCTION stockade.text(bytea) RETURNS text
  LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog AS $$
BEGIN
  RETURN convert_from($1, 'UTF8');
EXCEPTION WHEN OTHERS THEN
  RETURN encode($1, 'escape');
END
$$;

CREATE VIEW stockade.fences(resource, token, state, owner, holds, ttl_ms) AS
  SELECT stockade.text(name), token,
    CASE state WHEN 1 THEN 'live' WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,
    stockade.text(owner), holds, ttl_ms
  FROM stockade.resource WHERE state <> 0;
CREATE VIEW stockade.strings(key, value) AS
  SELECT stockade.text(name), stockade.text(value) FROM stockade.resource WHERE type = 1;
CREATE VIEW stockade.fields(key, field, value) AS
  SELECT stockade.text(name), stockade.text(field), stockade.text(f.value)
  FROM stockade.field f JOIN stockade.resource r ON r.id = f.resource;
