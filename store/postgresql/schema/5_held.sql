-- SPDX-License-Identifier: Apache-2.0
-- No temporary object stays on a connection, where it would change what later statements mean; and
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

SELECT set_config('stockade.whole', coalesce(string_agg(id::text, ' '), ''), true)
  FROM stockade.guard WHERE id NOT IN (SELECT id FROM stockade.guard_flaws());

-- Guards belong to the table and the column that they were put on, whatever those are called by
-- now, and remember their names. The trigger `bolt` never fires. Its condition mentions the column,
-- so PostgreSQL keeps what it refers to through renaming, dumps it, and lets nobody drop that
-- column or change its type while the guard is there.
CREATE OR REPLACE FUNCTION stockade.guard_triggers(guard stockade.guard)
  RETURNS TABLE(relation regclass, name text, fires text, sql text)
  LANGUAGE sql STABLE AS $$
  SELECT t.relation, n.name, part.fires, format('CREATE TRIGGER %I %s ON %s.%I %s EXECUTE FUNCTION '
    'stockade.guard_%s()', n.name, part.event, c.relnamespace::regnamespace, c.relname, part.rows,
    guard.id)
  FROM stockade.tree(guard.relation) t
  JOIN pg_class c ON c.oid = t.relation,
  (VALUES
    ('row', true, 'ALWAYS', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('bolt', true, 'REPLICA', 'AFTER DELETE',
     format('FOR EACH ROW WHEN (((old.%I IS NULL) AND false))', guard.key)),
    ('truncate', true, 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT'),
    ('insert', false, 'ALWAYS', 'AFTER INSERT',
     'REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('update', false, 'ALWAYS', 'AFTER UPDATE',
     'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('delete', false, 'ALWAYS', 'AFTER DELETE',
     'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT'),
    ('row', false, 'REPLICA', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('bolt', false, 'REPLICA', 'AFTER DELETE', format('REFERENCING OLD TABLE AS old_rows '
     'FOR EACH ROW WHEN (((old.%I IS NULL) AND false))', guard.key)),
    ('truncate', false, 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT')
  ) AS part(name, by_row, fires, event, rows),
  LATERAL (SELECT concat('stockade_guard_', guard.id, '_', part.name)) AS n(name)
  WHERE part.by_row = guard.by_row AND (guard.by_row OR t.depth = 0)
  ORDER BY t.depth
$$;

-- What a table is called, as guards remember it.
CREATE FUNCTION stockade.table_name(relation regclass) RETURNS text
  LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN relnamespace = 'public'::regnamespace THEN format('%I', relname)
    ELSE format('%s.%I', relnamespace::regnamespace, relname) END FROM pg_class WHERE oid = relation
$$;

-- What the column that a guard was put on is called by now; null: it is gone, or the bolt is. The
-- name comes from where the writing statement has it from, and not from an older snapshot.
CREATE FUNCTION stockade.guard_column(guard stockade.guard) RETURNS text
  LANGUAGE sql STABLE AS $$
  SELECT (pg_identify_object_as_address('pg_class'::regclass, d.refobjid, d.refobjsubid)
      ).object_names[3]
    FROM pg_trigger t JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
      AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid AND d.refobjsubid > 0
    WHERE t.tgrelid = guard.relation AND t.tgname = concat('stockade_guard_', guard.id, '_bolt')
$$;

-- Refuses the write where another column has that name, or none. It says IMMUTABLE so that it is
-- called when a plan is made, and no more: the table that it returns is then part of the plan,
-- which is thrown away as soon as somebody alters that table.
CREATE FUNCTION stockade.guard_stands(guard int4) RETURNS regclass
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  put stockade.guard;
  called text;
BEGIN
  SELECT * INTO put FROM stockade.guard g WHERE g.id = guard;
  IF put.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the guard is newer than your snapshot',
      HINT = 'Try the transaction again.';
  END IF;
  called := stockade.guard_column(put);
  IF called IS DISTINCT FROM put.key THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = format('GUARDED rows of %s are guarded by the column %I, which is %s', put.relation,
        put.key, coalesce('called ' || quote_ident(called) || ' now', 'gone')),
      HINT = format('stockade guard drop %s, then guard create with the column that is meant.',
        put.relation);
  END IF;
  RETURN put.relation;
END
$$;

CREATE OR REPLACE FUNCTION stockade.guard_body(guard stockade.guard) RETURNS text
  LANGUAGE sql IMMUTABLE AS $$
  SELECT format($body$
DECLARE
  stands regclass := stockade.guard_stands(%3$s);
  keys text[];
BEGIN
  IF TG_OP = 'UPDATE' AND TG_LEVEL = 'STATEMENT' THEN
    SELECT array_agg(CASE WHEN key IS NOT NULL THEN concat(key) END) INTO keys
      FROM (SELECT o.%2$I FROM old_rows o UNION SELECT n.%2$I FROM new_rows n) AS r(key);
  ELSIF TG_OP = 'TRUNCATE' THEN
    PERFORM stockade.refuse('TRUNCATE', TG_RELID::regclass::text);
  ELSIF TG_LEVEL = 'ROW' THEN
    IF TG_OP <> 'INSERT' THEN
      keys := ARRAY[CASE WHEN OLD.%2$I IS NOT NULL THEN concat(OLD.%2$I) END];
    END IF;
    IF TG_OP <> 'DELETE' AND (TG_OP = 'INSERT' OR NEW.%2$I IS DISTINCT FROM OLD.%2$I) THEN
      keys := keys || CASE WHEN NEW.%2$I IS NOT NULL THEN concat(NEW.%2$I) END;
    END IF;
  ELSIF TG_OP = 'INSERT' THEN
    SELECT array_agg(CASE WHEN key IS NOT NULL THEN concat(key) END) INTO keys
      FROM (SELECT DISTINCT n.%2$I FROM new_rows n) AS r(key);
  ELSE
    SELECT array_agg(CASE WHEN key IS NOT NULL THEN concat(key) END) INTO keys
      FROM (SELECT DISTINCT o.%2$I FROM old_rows o) AS r(key);
  END IF;
  IF cardinality(keys) = 1 THEN
    PERFORM FROM stockade.resource r, stockade.meta m
      WHERE r.name = convert_to(%1$L || keys[1], 'UTF8')
        AND r.token = stockade.claimed(convert_to(%1$L || keys[1], 'UTF8')) AND r.state = 1
        AND r.token > m.ended AND stockade.is_here(m.identity, m.server) FOR NO KEY UPDATE OF r;
  END IF;
  IF cardinality(keys) > 1 OR (cardinality(keys) = 1 AND NOT FOUND) THEN
    PERFORM stockade.check_keys(%1$L, keys);
  END IF;
  RETURN NULL;
END
$body$, guard.prefix, guard.key, guard.id)
$$;

-- What is wrong with guards.
CREATE OR REPLACE FUNCTION stockade.guard_flaws() RETURNS TABLE(id int4, kind text, problem text)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $$
  WITH whole AS (
    SELECT g.* FROM stockade.guard g JOIN pg_class c ON c.oid = g.relation),
  wanted AS (
    SELECT g.id, t.relation, t.relation <> g.relation AS below, t.name, t.sql, t.fires,
      tg.oid AS trigger, tg.tgenabled AS enabled
    FROM stockade.guard g JOIN pg_class c ON c.oid = g.relation, stockade.guard_triggers(g) t
    LEFT JOIN pg_trigger tg ON tg.tgrelid = t.relation AND tg.tgname = t.name)
  SELECT g.id, 'table gone', format('table %s is gone', g.name) FROM stockade.guard g
    WHERE NOT EXISTS(SELECT FROM pg_class c WHERE c.oid = g.relation)
  UNION ALL
  SELECT g.id, 'table renamed', format('the table that was guarded as %s is called %s now%s; if '
      'that is as it should be: stockade guard drop %2$s, and guard create for what is to be '
      'guarded', g.name, g.now, CASE WHEN EXISTS(SELECT FROM pg_class c
        WHERE stockade.table_name(c.oid) = g.name) THEN format(', and %s is another one', g.name)
      END)
    FROM (SELECT w.*, stockade.table_name(w.relation) AS now FROM whole w) AS g
    WHERE g.now <> g.name
  UNION ALL
  SELECT g.id, CASE WHEN g.now IS NULL THEN 'column gone' ELSE 'column renamed' END,
      format('rows of %s are guarded by the column %I, which is %s: they do not change until '
        'stockade guard drop %1$s, and guard create with the column that is meant', g.relation,
        g.key, coalesce('called ' || quote_ident(g.now) || ' now', 'gone'))
    FROM (SELECT w.*, stockade.guard_column(w) AS now FROM stockade.guard w) AS g
    WHERE EXISTS(SELECT FROM pg_class c WHERE c.oid = g.relation)
      AND to_regprocedure(format('stockade.guard_%s()', g.id)) IS NOT NULL
      AND g.now IS DISTINCT FROM g.key
      AND (g.now IS NOT NULL OR EXISTS(SELECT FROM wanted w WHERE w.id = g.id
        AND w.name = concat('stockade_guard_', g.id, '_bolt') AND w.trigger IS NULL))
  UNION ALL
  SELECT g.id, 'column changed', format('%s.%I is %s, and was %s', g.relation, g.key,
      concat_ws(' ', atttypid::regtype, nullif(attcollation, 0)::regcollation), g.type)
    FROM whole g JOIN pg_attribute a ON a.attrelid = g.relation AND a.attname = g.key
    LEFT JOIN pg_collation l ON l.oid = attcollation
    WHERE atttypid <> g.type OR NOT coalesce(collisdeterministic, true)
  UNION ALL
  SELECT id, 'trigger gone', format('%s has no trigger %s', relation, name)
    FROM wanted WHERE trigger IS NULL AND NOT below
  UNION ALL
  SELECT id, 'child without guard', format('%s has no trigger %s: it was made a partition or a '
      'child after the guard', relation, name)
    FROM wanted WHERE trigger IS NULL AND below
  UNION ALL
  SELECT g.id, 'child without guard', format('%s has become a child of %s', t.relation, g.relation)
    FROM whole g, stockade.tree(g.relation) t WHERE NOT g.by_row AND t.depth > 0
  UNION ALL
  SELECT id, 'trigger disabled', format('trigger %s of %s is disabled', name, relation)
    FROM wanted WHERE enabled = 'D'
  UNION ALL
  SELECT id, 'trigger not always', format('trigger %s of %s does not fire just when it should: '
      'ALTER TABLE ... ENABLE %s TRIGGER', name, relation, fires)
    FROM wanted WHERE enabled <> 'D' AND enabled::text <> left(fires, 1)
  UNION ALL
  SELECT id, 'trigger altered', format('trigger %s of %s is not as it was made', name, relation)
    FROM wanted w WHERE pg_get_triggerdef(trigger) <> sql
      AND NOT (name LIKE '%!_bolt' ESCAPE '!' AND (SELECT stockade.guard_column(g) <> g.key
        FROM stockade.guard g WHERE g.id = w.id))
  UNION ALL
  SELECT g.id, 'function gone', format('function stockade.guard_%s() is gone', g.id)
    FROM whole g WHERE to_regprocedure(format('stockade.guard_%s()', g.id)) IS NULL
  UNION ALL
  SELECT g.id, 'function altered',
      format('function stockade.guard_%s() is not as it was made', g.id)
    FROM stockade.guard g JOIN pg_class c ON c.oid = g.relation
    JOIN pg_proc p ON p.oid = to_regprocedure(format('stockade.guard_%s()', g.id))
    WHERE prosrc <> stockade.guard_body(g) OR NOT prosecdef
      OR proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']
      OR proowner <> (SELECT nspowner FROM pg_namespace WHERE nspname = 'stockade')
$$;

-- Who asks for a name that another table has now is told where the guard is.
CREATE OR REPLACE FUNCTION stockade.guard_drop("table" text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET client_min_messages = warning AS $$
DECLARE
  guard stockade.guard;
  elsewhere text;
BEGIN
  SELECT * INTO guard FROM stockade.guard g WHERE g.name = "table"
    AND NOT EXISTS(SELECT FROM pg_class c WHERE c.oid = g.relation);
  IF guard.id IS NULL THEN
    SELECT stockade.table_name(g.relation) INTO elsewhere FROM stockade.guard g
      WHERE g.name = "table" AND stockade.table_name(g.relation) <> g.name ORDER BY g.id LIMIT 1;
    IF elsewhere IS NOT NULL AND NOT EXISTS(SELECT FROM stockade.guard g
        WHERE stockade.table_name(g.relation) = "table") THEN
      RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('the table that was guarded as %s '
        'is called %s now: GUARD DROP %2$s', "table", elsewhere);
    END IF;
    SELECT * INTO guard FROM stockade.guard g WHERE g.relation = stockade.table_named("table");
  END IF;
  IF guard.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('table %s is not guarded', "table");
  END IF;
  EXECUTE format('DROP FUNCTION IF EXISTS stockade.guard_%s() CASCADE', guard.id);
  DELETE FROM stockade.guard g WHERE g.id = guard.id;
END
$$;

-- The guards that are there and were whole, made anew. One that cannot be, because somebody has its
-- table locked, stays as it was, and is told as broken until GUARD CREATE.
DO $$
DECLARE
  old stockade.guard;
BEGIN
  FOR old IN SELECT g.* FROM stockade.guard g
      WHERE g.id::text = ANY(string_to_array(current_setting('stockade.whole'), ' ')) LOOP
    BEGIN
      PERFORM stockade.guard_create(stockade.table_name(old.relation), quote_ident(old.key),
        old.prefix);
      UPDATE stockade.guard SET name = old.name WHERE relation = old.relation;
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
END
$$;

REVOKE ALL ON FUNCTION stockade.table_name, stockade.guard_column, stockade.guard_stands
  FROM PUBLIC;
INSERT INTO stockade.code SELECT oid::regprocedure::text, stockade.code_hash(oid) FROM pg_proc
  WHERE pronamespace = 'stockade'::regnamespace AND proname IN ('guard_column', 'guard_stands')
  ON CONFLICT (signature) DO UPDATE SET hash = excluded.hash;
