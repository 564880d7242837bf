-- SPDX-License-Identifier: Apache-2.0
-- The wire command SQL: users' statements, as a role that has nothing to do with Stockade's own.
-- Released steps are never edited (schema.c).
--
-- A statement runs in functions of the role stockade_sql, with its rights (SECURITY DEFINER). In
-- there PostgreSQL lets nobody set a role, so the statement cannot become who called it. All of its
-- life is in there: it is planned in sql_open, runs in sql_fetch, what it has deferred is checked
-- at the end of that, its values are made text there. Nothing of it may be left to run outside,
-- where it would be the daemon: sql_check sees to that.

-- Stockade's views name all resources. A daemon that runs a statement for somebody who may not see
-- them has set its role to its own name, which a statement cannot set.
CREATE FUNCTION stockade.may_see() RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('role') = session_user::text THEN
    RAISE insufficient_privilege
      USING MESSAGE = 'Stockade''s views name all resources: to read them takes %R~*';
  END IF;
  RETURN true;
END
$$;

CREATE OR REPLACE VIEW stockade.fences(resource, token, state, owner, holds, ttl_ms)
  WITH (security_barrier) AS
  SELECT stockade.text(name), token,
    CASE state WHEN 1 THEN 'live' WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,
    stockade.text(owner), holds, ttl_ms
  FROM stockade.resource WHERE state <> 0 AND stockade.may_see();
CREATE OR REPLACE VIEW stockade.strings(key, value) WITH (security_barrier) AS
  SELECT stockade.text(name), stockade.text(value)
  FROM stockade.resource WHERE type = 1 AND stockade.may_see();
CREATE OR REPLACE VIEW stockade.fields(key, field, value) WITH (security_barrier) AS
  SELECT stockade.text(name), stockade.text(field), stockade.text(f.value)
  FROM stockade.field f JOIN stockade.resource r ON r.id = f.resource WHERE stockade.may_see();

-- Functions and triggers that others have made, which a statement calls, may do more than a
-- statement: prepare another one under a name that the daemon uses, or defer themselves again while
-- constraints are set immediate. `ends`: the statement has succeeded.
CREATE FUNCTION stockade.sql_check(ends boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  risky CONSTANT text := 'SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid'
    ' LEFT JOIN pg_index i ON i.indexrelid = t.tgconstrindid WHERE t.tgdeferrable'
    ' AND CASE WHEN t.tgisinternal THEN i.indexprs IS NOT NULL OR i.indpred IS NOT NULL'
    ' ELSE NOT p.prosecdef END';
  name text;
BEGIN
  IF EXISTS(SELECT FROM pg_prepared_statements WHERE from_sql) THEN
    RAISE 'a function that the statement calls has prepared another one' USING ERRCODE = 'ST900';
  END IF;
  IF NOT ends OR current_setting('transaction_read_only') = 'on' THEN
    RETURN;
  END IF;
  EXECUTE risky || ' LIMIT 1' INTO name;
  IF name IS NOT NULL THEN
    EXECUTE risky || ' AND t.tgrelid IN (SELECT relation FROM pg_locks'
      ' WHERE pid = pg_backend_pid() AND mode = ''RowExclusiveLock'') LIMIT 1' INTO name;
  END IF;
  IF name IS NOT NULL THEN
    RAISE insufficient_privilege USING MESSAGE = format(
      '%I is deferrable, and might run as the daemon: make its function SECURITY DEFINER', name);
  END IF;
END
$$;

-- Opens the portal stockade_sql on the rows of the statement, which the caller has found to be one.
-- `how`: prepared, for what can be (SELECT, INSERT, ...); explain; define. Returns how many rows
-- it has changed; null where it gives rows, and is still to run. Types of parameters are names;
-- `unknown` is found out from where the parameter stands.
CREATE FUNCTION stockade.sql_open(how text, statement text, types text[], params text[])
  RETURNS int8 LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  portal refcursor := 'stockade_sql';
  wanted regtype[];
  given text;
  changed int8 := 0;
BEGIN
  IF current_user <> 'stockade_sql' THEN
    RAISE 'stockade.sql_open belongs to another than stockade_sql';
  END IF;
  IF how = 'explain' THEN
    OPEN portal NO SCROLL FOR EXECUTE statement;
    RETURN NULL;
  ELSIF how = 'define' THEN
    EXECUTE statement;
  ELSIF pg_catalog.cardinality(types) = 0 THEN
    BEGIN
      OPEN portal NO SCROLL FOR EXECUTE statement;
      RETURN NULL;
    EXCEPTION WHEN invalid_cursor_definition THEN
      EXECUTE statement;
      GET DIAGNOSTICS changed = ROW_COUNT;
    END;
  ELSE
    -- USING takes as many values as are written there, of types that are known: so it is written.
    EXECUTE pg_catalog.format('PREPARE stockade_sql(%s) AS %s',
      pg_catalog.array_to_string(types, ', '), statement);
    SELECT parameter_types INTO wanted FROM pg_catalog.pg_prepared_statements
      WHERE name = 'stockade_sql';
    DEALLOCATE stockade_sql;
    IF pg_catalog.cardinality(wanted) <> pg_catalog.cardinality(params) THEN
      RAISE 'the statement takes % parameters, not %', pg_catalog.cardinality(wanted),
        pg_catalog.cardinality(params);
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.format('%L::%s', p.value, p.type), ', ' ORDER BY p.at)
      INTO given
      FROM ROWS FROM (pg_catalog.unnest(wanted), pg_catalog.unnest(params)) WITH ORDINALITY
        AS p(type, value, at);
    PERFORM pg_catalog.set_config('stockade.changed', '', true);
    EXECUTE pg_catalog.format('DO %L', pg_catalog.format($do$
      DECLARE
        portal refcursor := 'stockade_sql';
        changed int8;
      BEGIN
        OPEN portal NO SCROLL FOR EXECUTE %1$L USING %2$s;
      EXCEPTION WHEN invalid_cursor_definition THEN
        EXECUTE %1$L USING %2$s;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM pg_catalog.set_config('stockade.changed', changed::text, true);
      END $do$, statement, given));
    changed := nullif(pg_catalog.current_setting('stockade.changed'), '');
    IF changed IS NULL THEN
      RETURN NULL;
    END IF;
  END IF;
  OPEN portal NO SCROLL FOR SELECT WHERE false;
  RETURN changed;
EXCEPTION WHEN OTHERS THEN
  PERFORM stockade.sql_check(false);
  RAISE;
END
$$;

-- The portal's next rows, each as the text of a record; a null behind the last one. Then all that
-- the statement has deferred was checked. Ends early behind `room` bytes.
CREATE FUNCTION stockade.sql_fetch(most int, room int) RETURNS SETOF text
  LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  portal refcursor := 'stockade_sql';
  found_row record;
  line text;
BEGIN
  IF current_user <> 'stockade_sql' THEN
    RAISE 'stockade.sql_fetch belongs to another than stockade_sql';
  END IF;
  FOR i IN 1 .. most LOOP
    FETCH portal INTO found_row;
    IF NOT FOUND THEN
      EXECUTE 'CLOSE ALL'; -- others' cursors, too, which might outlive it (WITH HOLD)
      SET CONSTRAINTS ALL IMMEDIATE;
      EXECUTE 'CLOSE ALL';
      PERFORM stockade.sql_check(true);
      RETURN NEXT NULL;
      RETURN;
    END IF;
    line := found_row::text;
    IF pg_catalog.octet_length(line) > 67108864 THEN
      RAISE program_limit_exceeded
        USING MESSAGE = 'the result is too large: 64 MiB at most; use LIMIT';
    END IF;
    RETURN NEXT line;
    room := room - pg_catalog.octet_length(line);
    EXIT WHEN room < 0;
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  PERFORM stockade.sql_check(false);
  RAISE;
END
$$;

REVOKE ALL ON FUNCTION stockade.sql_open, stockade.sql_fetch FROM PUBLIC;

-- Makes SQL ready, unless it is, as far as the daemon's rights go. Returns what is missing, or
-- null.
CREATE FUNCTION stockade.sql_set_up() RETURNS text
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  names CONSTANT text[] := ARRAY['stockade.sql_open', 'stockade.sql_fetch'];
  name text;
BEGIN
  BEGIN
    IF to_regrole('stockade_sql') IS NULL THEN
      CREATE ROLE stockade_sql;
    END IF;
    IF NOT pg_has_role('stockade_sql', 'USAGE') THEN
      EXECUTE format('GRANT stockade_sql TO %I', current_user);
    END IF;
  EXCEPTION WHEN insufficient_privilege THEN
    RETURN format('SQL runs as a role of its own; somebody who may make roles has to run: '
                  'CREATE ROLE stockade_sql; GRANT stockade_sql TO %I', current_user);
  END;
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = 'stockade_sql') OR
     has_table_privilege('stockade_sql', 'stockade.resource', 'SELECT, INSERT, UPDATE, DELETE')
  THEN
    RETURN 'the role stockade_sql may touch Stockade''s own tables: it must be no superuser, and '
           'no member of a role that may';
  END IF;
  IF (SELECT every(pg_get_userbyid(proowner) = 'stockade_sql' AND prosecdef) FROM pg_proc
      WHERE oid = ANY(names::regproc[])) THEN
    RETURN NULL;
  END IF;
  LOCK TABLE stockade.meta IN EXCLUSIVE MODE; -- another daemon may do it, too
  CREATE SCHEMA IF NOT EXISTS stockade_sql AUTHORIZATION stockade_sql;
  GRANT SELECT ON stockade.fences, stockade.strings, stockade.fields TO stockade_sql;
  GRANT USAGE, CREATE ON SCHEMA stockade TO stockade_sql;
  FOREACH name IN ARRAY names LOOP
    -- A statement does not get at them: they would take another one from it, which nobody has
    -- judged.
    EXECUTE format('ALTER FUNCTION %s OWNER TO stockade_sql', name);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM stockade_sql', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', name, current_user);
  END LOOP;
  REVOKE CREATE ON SCHEMA stockade FROM stockade_sql;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  RETURN 'SQL cannot be made ready: ' || SQLERRM;
END
$$;
