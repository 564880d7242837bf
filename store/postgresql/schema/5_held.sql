-- SPDX-License-Identifier: Apache-2.0
-- What a connection holds must not change what statements mean: temporary objects, settings. And
-- guards stay on the table and the column that they were put on. Released steps are never edited
-- (schema.c).

-- At the end of each statement of users'. One that temporary objects have survived, however it or
-- a function of others came to make them, would have later statements mean them, whoever's
-- statements those are: pg_temp is looked into first.
CREATE OR REPLACE FUNCTION stockade.sql_check(ends boolean) RETURNS void
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
  IF ends AND pg_my_temp_schema() <> 0 THEN
    SELECT format('%s %s', o.type, coalesce(quote_ident(o.name), o.identity)) INTO name
      FROM pg_depend d, pg_identify_object(d.classid, d.objid, d.objsubid) o
      WHERE refclassid = 'pg_namespace'::regclass AND refobjid = pg_my_temp_schema()
      ORDER BY o.type <> 'table', d.objid LIMIT 1;
  END IF;
  IF name IS NOT NULL THEN
    RAISE insufficient_privilege USING MESSAGE = format('there are no temporary objects here: %s; '
      'make it in a schema that stays, or drop it before the statement ends', name);
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
