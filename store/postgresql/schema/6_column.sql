-- SPDX-License-Identifier: Apache-2.0
-- Guards by column: each statement that inserts or updates a row assigns the token itself.
--
--   UPDATE inventory SET pieces = 9, stockade_token = 34 WHERE sku = 1042
--
-- The trigger judges the token under the fence's lock and leaves NULL in the column. Nothing has to
-- come before the statement, and nothing of it lingers in the connection. Released steps are never
-- edited (schema.c).
--
-- A row is locked before its BEFORE triggers run, and then its fence; present(), which DELETE still
-- takes, locks the fence first. So whoever has a row looks at its fence without a lock first, then
-- waits for it for a moment only, and looks again: a token that is stale by now is refused, and
-- gives the row up, long before the rightful holder could be the victim of a deadlock.

-- The columns that take tokens; a guard without one is by present(). `adds`: the guard made the
-- column, and takes it away when it goes. Older daemons find stockade.guard as they know it.
CREATE TABLE stockade.guard_token(
  id int4 PRIMARY KEY,
  token text NOT NULL,
  adds boolean NOT NULL);

CREATE FUNCTION stockade.guard_takes(guard stockade.guard) RETURNS text
  LANGUAGE sql STABLE AS $$
  SELECT token FROM stockade.guard_token t WHERE t.id = guard.id
$$;

CREATE OR REPLACE FUNCTION stockade.refuse(verdict text, resource text) RETURNS void
  LANGUAGE plpgsql AS $$
BEGIN
  resource := coalesce(resource, 'NULL');
  CASE verdict
  WHEN 'STALE' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST001',
      MESSAGE = 'STALE this token of ''' || resource || ''' was released or revoked, or a newer '
                'one was granted',
      HINT = 'Acquire the lease again, and do all of the work anew under its token.';
  WHEN 'UNKNOWN' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST002',
      MESSAGE = 'UNKNOWN this token was never granted for ''' || resource || '''',
      HINT = 'Present the token that ACQUIRE gave for this resource in this store.';
  WHEN 'GUARDED' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED the token of ''' || resource || ''' was not presented in this transaction',
      HINT = 'Call stockade.present(resource, token) for it before the row is changed.';
  WHEN 'NOTOKEN' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST004',
      MESSAGE = 'NOTOKEN no token was presented in this transaction for ''' || resource || '''',
      HINT = 'In one transaction: SELECT stockade.present(resource, token), then change the row.';
  WHEN 'NOTOKEN COLUMN' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST004',
      MESSAGE = 'NOTOKEN the statement assigns no token to its row of ''' || resource || '''',
      HINT = 'Assign it in the same statement, to the column that the guard has for tokens: '
             'UPDATE ... SET ..., stockade_token = ... (GUARD LIST tells the column).';
  WHEN 'KEY' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED the row of ''' || resource || ''' would become another resource''s, and '
                'one token stands for one resource',
      HINT = 'DELETE it under its token by stockade.present(), and INSERT it anew under the other.';
  WHEN 'KEY NULL' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED the key of a guarded row is NULL, and names no resource';
  WHEN 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED table ' || resource || ' is guarded: TRUNCATE asks for no tokens',
      HINT = 'DELETE the rows whose tokens you have presented.';
  WHEN 'STORE' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST006',
      MESSAGE = 'STORE this server or database has not served the store before: it was started '
                'anew, promoted, restored or copied',
      HINT = 'A stockaded that works on it looks at it within a second, and then all goes on.';
  END CASE;
END
$$;

-- Limits for the transaction, as claim() sets them: whoever pauses now holds up the next grant.
CREATE FUNCTION stockade.limits() RETURNS text
  LANGUAGE sql VOLATILE AS $$
  SELECT concat(
    CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
        OR current_setting('idle_in_transaction_session_timeout')::interval > '10s'
      THEN set_config('idle_in_transaction_session_timeout', coalesce(
             nullif(current_setting('stockade.idle_timeout', true), ''), '10s'), true) END,
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        AND current_setting('stockade.synchronous_commit', true) IS DISTINCT FROM 'as it is'
      THEN set_config('synchronous_commit', 'on', true) END)
$$;

-- As judge(), which waits for a moment only. Less than deadlock_timeout, which is a second unless
-- somebody has changed it.
CREATE FUNCTION stockade.judge_soon(name bytea, token int8) RETURNS void
  LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
BEGIN
  PERFORM stockade.judge(ARRAY[name], ARRAY[token]);
END
$$;

-- A row that is inserted or updated is given this token: may it change now? For whatever is not
-- plainly good, and for fences that somebody has locked.
CREATE FUNCTION stockade.judge_row(prefix text, key text, token int8) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE
  named bytea := convert_to(prefix || key, 'UTF8');
  until timestamptz := clock_timestamp() +
    coalesce(nullif(current_setting('lock_timeout')::interval, '0'), '10s');
  verdict text;
BEGIN
  IF key IS NULL THEN
    PERFORM stockade.refuse('KEY NULL', NULL);
  ELSIF token IS NULL THEN
    PERFORM stockade.refuse('NOTOKEN COLUMN', stockade.text(named));
  END IF;
  LOOP
    SELECT stockade.verdict(judge_row.token, r.token,
        stockade.state_of(r.token, r.state, m.ended))
      INTO verdict FROM stockade.resource r, stockade.meta m WHERE r.name = named;
    IF verdict IS NOT NULL THEN
      PERFORM stockade.refuse(verdict, stockade.text(named));
    END IF;
    BEGIN
      PERFORM stockade.judge_soon(named, token);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('the fence of %L is locked, and '
          'this transaction could not see what becomes of it', stockade.text(named)),
          HINT = 'Try the transaction again.';
      ELSIF clock_timestamp() > until THEN
        RAISE;
      END IF;
    END;
  END LOOP;
END
$$;

-- The triggers of a guard by column. Triggers fire in the order of their names' bytes, and the one
-- that judges a row must be the last that could change it: guard_stands() refuses later ones.
CREATE OR REPLACE FUNCTION stockade.guard_triggers(guard stockade.guard)
  RETURNS TABLE(relation regclass, name text, fires text, sql text)
  LANGUAGE sql STABLE AS $$
  SELECT t.relation, n.name, part.fires, format('CREATE TRIGGER %I %s ON %s.%I %s EXECUTE FUNCTION '
    'stockade.guard_%s()', n.name, part.event, c.relnamespace::regnamespace, c.relname, part.rows,
    guard.id)
  FROM stockade.tree(guard.relation) t
  JOIN pg_class c ON c.oid = t.relation,
  (VALUES
    ('row', 'tree', 'ALWAYS', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('bolt', 'tree', 'REPLICA', 'AFTER DELETE',
     format('FOR EACH ROW WHEN (((old.%I IS NULL) AND false))', guard.key)),
    ('truncate', 'tree', 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT'),
    ('insert', 'table', 'ALWAYS', 'AFTER INSERT',
     'REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('update', 'table', 'ALWAYS', 'AFTER UPDATE',
     'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('delete', 'table', 'ALWAYS', 'AFTER DELETE',
     'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT'),
    ('row', 'table', 'REPLICA', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('bolt', 'table', 'REPLICA', 'AFTER DELETE', format('REFERENCING OLD TABLE AS old_rows '
     'FOR EACH ROW WHEN (((old.%I IS NULL) AND false))', guard.key)),
    ('truncate', 'table', 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT'),
    ('token', 'column', 'ALWAYS', 'BEFORE INSERT OR UPDATE', 'FOR EACH ROW'),
    ('delete', 'column', 'ALWAYS', 'AFTER DELETE',
     'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT'),
    ('row', 'column', 'REPLICA', 'AFTER DELETE', 'FOR EACH ROW'),
    ('bolt', 'column', 'REPLICA', 'AFTER DELETE', format('REFERENCING OLD TABLE AS old_rows '
     'FOR EACH ROW WHEN (((old.%I IS NULL) AND false))', guard.key)),
    ('truncate', 'column', 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT')
  ) AS part(name, way, fires, event, rows),
  LATERAL (SELECT concat(CASE part.name WHEN 'token' THEN '~' END, 'stockade_guard_', guard.id,
                         '_', part.name)) AS n(name)
  WHERE part.way = CASE WHEN stockade.guard_takes(guard) IS NOT NULL THEN 'column'
      WHEN guard.by_row THEN 'tree' ELSE 'table' END
    AND (guard.by_row OR t.depth = 0)
  ORDER BY t.depth
$$;

-- A trigger that fires behind the one that judges, and might change what was judged.
CREATE FUNCTION stockade.guard_outrun(guard stockade.guard) RETURNS name
  LANGUAGE sql STABLE AS $$
  SELECT min(tgname) FROM pg_trigger
    WHERE tgrelid = guard.relation AND stockade.guard_takes(guard) IS NOT NULL
      AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3 AND tgtype & 20 <> 0
      AND tgname::text COLLATE "C" > concat('~stockade_guard_', guard.id, '_token')
$$;

-- What is wrong with the column for tokens. NULL: nothing.
CREATE FUNCTION stockade.guard_token_flaw(guard stockade.guard) RETURNS text
  LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN NOT EXISTS(SELECT FROM pg_attribute WHERE attrelid = guard.relation
        AND attname = t.token AND attnum > 0 AND atttypid = 'int8'::regtype)
      THEN format('%s has no column %I of int8 for tokens any more', guard.relation, t.token)
    WHEN NOT EXISTS(SELECT FROM pg_constraint
        WHERE conrelid = guard.relation AND conname = concat('stockade_guard_', guard.id, '_token')
          AND pg_get_constraintdef(oid) = format('CHECK ((%I IS NULL))', t.token))
      THEN format('%s has no constraint stockade_guard_%s_token any more', guard.relation, guard.id)
    WHEN stockade.guard_outrun(guard) IS NOT NULL
      THEN format('trigger %I of %s fires behind the guard''s own, and might change what that has '
        'judged: ALTER TRIGGER ... RENAME TO a name that comes before "~"',
        stockade.guard_outrun(guard), guard.relation)
    END
    FROM stockade.guard_token t WHERE t.id = guard.id
$$;

-- As before, and what the column for tokens needs.
CREATE OR REPLACE FUNCTION stockade.guard_stands(guard int4) RETURNS regclass
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  put stockade.guard;
  called text;
  flaw text;
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
  flaw := stockade.guard_token_flaw(put);
  IF flaw IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003', MESSAGE = 'GUARDED ' || flaw;
  END IF;
  RETURN put.relation;
END
$$;

-- The body of a guard's function: by column, where one token cannot stand for two keys; else as
-- before.
CREATE OR REPLACE FUNCTION stockade.guard_body(guard stockade.guard) RETURNS text
  LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN stockade.guard_takes(guard) IS NOT NULL THEN format($body$
DECLARE
  stands regclass := stockade.guard_stands(%3$s);
  keys text[];
  void text;
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    PERFORM stockade.refuse('TRUNCATE', TG_RELID::regclass::text);
  ELSIF TG_WHEN = 'BEFORE' THEN
    IF TG_OP = 'UPDATE' AND concat(NEW.%2$I) <> concat(OLD.%2$I) THEN
      PERFORM stockade.refuse('KEY', %1$L || concat(OLD.%2$I));
    END IF;
    PERFORM FROM stockade.resource r, stockade.meta m
      WHERE r.name = convert_to(%1$L || NEW.%2$I, 'UTF8') AND r.token = NEW.%4$I AND r.state = 1
        AND r.token > m.ended AND stockade.is_here(m.identity, m.server)
      FOR NO KEY UPDATE OF r SKIP LOCKED;
    IF NOT FOUND THEN
      PERFORM stockade.judge_row(%1$L, CASE WHEN NEW.%2$I IS NOT NULL THEN concat(NEW.%2$I) END,
        NEW.%4$I);
    END IF;
    void := stockade.limits();
    NEW.%4$I := NULL;
    RETURN NEW;
  ELSIF TG_LEVEL = 'ROW' THEN
    PERFORM stockade.check_keys(%1$L,
      ARRAY[CASE WHEN OLD.%2$I IS NOT NULL THEN concat(OLD.%2$I) END]);
  ELSE
    SELECT array_agg(CASE WHEN key IS NOT NULL THEN concat(key) END) INTO keys
      FROM (SELECT DISTINCT o.%2$I FROM old_rows o) AS r(key);
    IF keys IS NOT NULL THEN
      PERFORM stockade.check_keys(%1$L, keys);
    END IF;
  END IF;
  RETURN NULL;
END
$body$, guard.prefix, guard.key, guard.id, stockade.guard_takes(guard)) ELSE format($body$
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
$body$, guard.prefix, guard.key, guard.id) END
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
  SELECT g.id, 'token column', stockade.guard_token_flaw(g) FROM whole g
    WHERE stockade.guard_token_flaw(g) IS NOT NULL
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

-- May the guarded table take tokens in this column? Returns whether it has to be added.
CREATE FUNCTION stockade.guard_token_planned(guard stockade.guard, token name) RETURNS boolean
  LANGUAGE plpgsql AS $$
DECLARE
  attribute pg_attribute;
  filled boolean;
BEGIN
  SELECT * INTO attribute FROM pg_attribute
    WHERE attrelid = guard.relation AND attname = token AND attnum > 0;
  IF guard.by_row THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('%s has partitions, parents or '
      'children: guard it without TOKEN, and present the token', guard.relation);
  ELSIF EXISTS(SELECT FROM pg_attribute WHERE attrelid = guard.relation AND attname = guard.key
               AND attgenerated <> '') THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('column %I of %s is generated, '
      'behind all triggers: guard it without TOKEN, and present the token', guard.key,
      guard.relation);
  ELSIF attribute.attname IS NULL THEN
    RETURN true;
  ELSIF attribute.atttypid <> 'int8'::regtype OR attribute.attnotnull OR attribute.atthasdef
      OR attribute.attidentity <> '' THEN
    RAISE EXCEPTION USING ERRCODE = '42804', MESSAGE = format('column %I of %s cannot take tokens: '
      'it has to be an int8 that may be NULL, without a default', token, guard.relation);
  END IF;
  EXECUTE format('SELECT EXISTS(SELECT FROM %s WHERE %I IS NOT NULL)', guard.relation, token)
    INTO filled;
  IF filled THEN
    RAISE EXCEPTION USING ERRCODE = '23514', MESSAGE = format('column %I of %s has values: name a '
      'column that is empty, or none that is there, and the guard adds it', token, guard.relation);
  END IF;
  RETURN false;
END
$$;

DROP FUNCTION stockade.guard_create(text, text, text);
CREATE FUNCTION stockade.guard_create("table" text, "column" text, prefix text,
                                      token text DEFAULT NULL) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET quote_all_identifiers = off AS $$
DECLARE
  target regclass := stockade.table_named("table");
  takes name := (parse_ident(token))[1];
  adds boolean := false;
  guard stockade.guard;
  old stockade.guard;
  old_token stockade.guard_token;
  part record;
  outrun name;
BEGIN
  guard := stockade.guard_planned(target, "column", prefix);
  EXECUTE format('LOCK TABLE %s IN %s MODE', target, CASE WHEN takes IS NULL
    THEN 'SHARE ROW EXCLUSIVE' ELSE 'ACCESS EXCLUSIVE' END);
  IF takes IS NOT NULL THEN
    adds := stockade.guard_token_planned(guard, takes);
  END IF;
  SELECT * INTO old FROM stockade.guard g WHERE g.relation = target;
  IF old.id IS NOT NULL THEN
    SELECT * INTO old_token FROM stockade.guard_token t WHERE t.id = old.id;
    IF (old.key, old.prefix, old_token.token)
          IS DISTINCT FROM (guard.key, guard.prefix, takes::text)
        OR NOT EXISTS(SELECT FROM stockade.guard_flaws() f WHERE f.id = old.id) THEN
      RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('table %s is guarded already, by '
        'column %s and prefix %s%s; GUARD DROP it first', target, old.key, old.prefix,
        ', with TOKEN ' || old_token.token);
    END IF;
    PERFORM stockade.guard_drop("table");
    adds := adds OR coalesce(old_token.adds, false);
  END IF;
  INSERT INTO stockade.guard(relation, name, key, type, prefix, by_row)
    VALUES(target, guard.name, guard.key, guard.type, prefix, guard.by_row) RETURNING * INTO guard;
  IF takes IS NOT NULL THEN
    INSERT INTO stockade.guard_token VALUES(guard.id, takes, adds);
    outrun := stockade.guard_outrun(guard);
    IF outrun IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('trigger %I of %s would fire '
        'behind the guard''s own: ALTER TRIGGER ... RENAME TO a name that comes before "~"', outrun,
        target);
    END IF;
    IF adds THEN
      EXECUTE format('ALTER TABLE %s ADD COLUMN %I int8', target, takes);
    END IF;
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT stockade_guard_%s_token CHECK (%I IS NULL)',
      target, guard.id, takes);
  END IF;
  EXECUTE format('CREATE FUNCTION stockade.guard_%s() RETURNS trigger LANGUAGE plpgsql '
    'SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', guard.id,
    stockade.guard_body(guard));
  EXECUTE format('REVOKE ALL ON FUNCTION stockade.guard_%s() FROM PUBLIC', guard.id);
  FOR part IN SELECT * FROM stockade.guard_triggers(guard) LOOP
    IF NOT EXISTS(SELECT FROM pg_trigger
                  WHERE tgrelid = part.relation AND tgname = part.name) THEN
      EXECUTE part.sql;
    END IF;
    EXECUTE format('ALTER TABLE %s ENABLE %s TRIGGER %I', part.relation, part.fires, part.name);
  END LOOP;
  PERFORM stockade.grant_app();
END
$$;

-- What a guard put on its table goes with it.
CREATE OR REPLACE FUNCTION stockade.guard_drop("table" text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET client_min_messages = warning AS $$
DECLARE
  guard stockade.guard;
  takes stockade.guard_token;
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
  SELECT * INTO takes FROM stockade.guard_token t WHERE t.id = guard.id;
  IF takes.id IS NOT NULL AND EXISTS(SELECT FROM pg_class c WHERE c.oid = guard.relation) THEN
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS stockade_guard_%s_token',
      guard.relation, guard.id);
    IF takes.adds THEN
      EXECUTE format('ALTER TABLE %s DROP COLUMN IF EXISTS %I', guard.relation, takes.token);
    END IF;
  END IF;
  DELETE FROM stockade.guard_token t WHERE t.id = guard.id;
  DELETE FROM stockade.guard g WHERE g.id = guard.id;
END
$$;

DROP FUNCTION stockade.guard_try(bytea, bytea, bytea);
CREATE FUNCTION stockade.guard_try("table" bytea, "column" bytea, prefix bytea,
                                   token bytea DEFAULT NULL) RETURNS text
  LANGUAGE plpgsql AS $$
DECLARE
  message text;
  hint text;
BEGIN
  IF "column" IS NULL THEN
    PERFORM stockade.guard_drop(convert_from("table", 'UTF8'));
  ELSE
    PERFORM stockade.guard_create(convert_from("table", 'UTF8'), convert_from("column", 'UTF8'),
      convert_from(prefix, 'UTF8'), convert_from(nullif(token, ''), 'UTF8'));
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
  RETURN concat_ws('; ', message, nullif(hint, ''));
END
$$;

REVOKE ALL ON FUNCTION stockade.limits, stockade.judge_soon, stockade.judge_row,
  stockade.guard_outrun, stockade.guard_token_flaw, stockade.guard_takes,
  stockade.guard_token_planned, stockade.guard_create, stockade.guard_try
  FROM PUBLIC;
INSERT INTO stockade.code SELECT oid::regprocedure::text, stockade.code_hash(oid) FROM pg_proc
  WHERE pronamespace = 'stockade'::regnamespace AND proname IN ('refuse', 'guard_stands', 'limits',
    'judge_soon', 'judge_row', 'guard_outrun', 'guard_token_flaw')
  ON CONFLICT (signature) DO UPDATE SET hash = excluded.hash;
