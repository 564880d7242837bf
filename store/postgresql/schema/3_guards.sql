-- SPDX-License-Identifier: Apache-2.0
-- Tokens in the transactions of users' own programs, and guards: tables whose rows change only
-- under the token of the row's resource.
--
--   BEGIN; SELECT stockade.present('sku:1042', 33); UPDATE inventory ...; COMMIT;
--
-- present() locks the fence's row, judges the token, and notes it in a setting that ends with the
-- transaction. A setting is a claim and no verdict, for anybody can write one: a guard's trigger
-- judges it again, under the same lock. So a grant waits for whoever has presented the older
-- token, and who comes after the grant is refused.
--
-- The lock is FOR NO KEY UPDATE, as the daemon's own. Shared, a grant might wait for ever while
-- others come and go, and two programs under one token could both write what they had read. Behind
-- it they take turns.
--
-- What runs as the definer names all objects by their schema, and has pg_catalog and nobody's
-- temporary objects before them in its search path.

-- Guards. `name`, `type` and `collation` are as they were when the guard was made.
CREATE TABLE stockade.guard(
  id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  relation regclass NOT NULL UNIQUE,
  name text NOT NULL,
  key text NOT NULL,
  type regtype NOT NULL,
  prefix text NOT NULL,
  by_row boolean NOT NULL);

-- Refusals.

CREATE FUNCTION stockade.refuse(verdict text, resource text) RETURNS void
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
  WHEN 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED table ' || resource || ' is guarded: TRUNCATE asks for no tokens',
      HINT = 'DELETE the rows whose tokens you have presented.';
  WHEN 'STORE' THEN
    RAISE EXCEPTION USING ERRCODE = 'ST006',
      MESSAGE = 'STORE this server or database is not the one that the store was on: a promoted '
                'standby, a restored backup or a copy',
      HINT = 'Start a stockaded on it: it raises the floor of tokens, and then all goes on.';
  END CASE;
END
$$;

-- Tokens.

-- As fence_judge() in fence/token.c. NULL: the token is current.
CREATE FUNCTION stockade.verdict(presented int8, token int8, state int2) RETURNS text
  LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN presented IS NULL THEN 'NOTOKEN'
    WHEN state = 0 OR presented > token THEN 'UNKNOWN'
    WHEN presented < token OR state <> 1 THEN 'STALE' END
$$;

-- Is the store where it was? `stockade.here`, of a session, is what cannot change in it. This and
-- the next two are one expression each, which the planner puts in the place of the call.
CREATE FUNCTION stockade.is_here(identity text, timeline text) RETURNS boolean
  LANGUAGE sql VOLATILE AS $$
  SELECT identity = concat_ws('/', current_setting('stockade.here', true),
      'stockade.resource'::regclass::oid)
    AND timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
$$;

-- What this transaction says that it has presented for a resource. One of the claims is
-- ' ' || name in hexadecimal || '=' || token || ' '; the newest comes first.
CREATE FUNCTION stockade.claimed(name bytea) RETURNS int8
  LANGUAGE sql STABLE AS $$
  SELECT nullif(split_part(split_part(current_setting('stockade.claims', true),
    concat(' ', encode(name, 'hex'), '='), 2), ' ', 1), '')::int8
$$;

-- Adds to the claims, and sets limits for the transaction: whoever pauses now holds up the next
-- grant.
CREATE FUNCTION stockade.claim(claim text) RETURNS text
  LANGUAGE sql VOLATILE AS $$
  SELECT concat(
    CASE WHEN strpos(concat(current_setting('stockade.claims', true)), claim) = 0
      THEN set_config('stockade.claims', concat(claim, current_setting('stockade.claims', true)),
                      true) END,
    CASE WHEN current_setting('lock_timeout') = '0'
      THEN set_config('lock_timeout', '10s', true) END,
    CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
        OR current_setting('idle_in_transaction_session_timeout')::interval > '10s'
      THEN set_config('idle_in_transaction_session_timeout', coalesce(
             nullif(current_setting('stockade.idle_timeout', true), ''), '10s'), true) END,
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        AND current_setting('stockade.synchronous_commit', true) IS DISTINCT FROM 'as it is'
      THEN set_config('synchronous_commit', 'on', true) END)
$$;

-- Locks the fences of these resources, in the order of their ids, and judges a token for each.
CREATE FUNCTION stockade.judge(names bytea[], tokens int8[]) RETURNS void
  LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  here text := current_setting('stockade.here', true);
  found int8;
  bad text[];
BEGIN
  IF coalesce(here, '') = '' THEN
    here := set_config('stockade.here', (SELECT concat_ws('/', system_identifier,
      (SELECT oid FROM pg_database WHERE datname = current_database())) FROM pg_control_system()),
      false);
  END IF;
  IF (SELECT stockade.is_here(identity, timeline) FROM stockade.meta) IS NOT TRUE THEN
    PERFORM stockade.refuse('STORE', NULL);
  END IF;
  SELECT count(*), min(ARRAY[verdict, stockade.text(name)]) FILTER (WHERE verdict IS NOT NULL)
    INTO found, bad
    FROM (SELECT r.name, stockade.verdict(c.token, r.token, r.state) AS verdict
          FROM unnest(names, tokens) AS c(name, token) JOIN stockade.resource r ON r.name = c.name
          ORDER BY r.id FOR NO KEY UPDATE OF r) AS fence;
  IF bad IS NOT NULL THEN
    PERFORM stockade.refuse(bad[1], bad[2]);
  ELSIF found < cardinality(names) THEN
    PERFORM stockade.refuse('UNKNOWN', stockade.text(name)) FROM unnest(names) AS n(name)
      WHERE NOT EXISTS(SELECT FROM stockade.resource r WHERE r.name = n.name);
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'a resource has just been made anew',
      HINT = 'Try the transaction again.';
  END IF;
END
$$;

CREATE FUNCTION stockade.present_all(names bytea[], tokens int8[]) RETURNS void
  LANGUAGE plpgsql AS $$
BEGIN
  PERFORM stockade.claim(string_agg(concat(' ', encode(name, 'hex'), '=', token, ' '), ''))
    FROM unnest(names, tokens) AS c(name, token);
  PERFORM stockade.judge(names, tokens);
END
$$;

CREATE FUNCTION stockade.present(resource bytea, token bigint) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM stockade.present_all(ARRAY[resource], ARRAY[token]);
END
$$;

-- A token that is current passes here, for less.
CREATE FUNCTION stockade.present(resource text, token bigint) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named bytea := convert_to(resource, 'UTF8');
  void text := stockade.claim(concat(' ', encode(named, 'hex'), '=', token, ' '));
BEGIN
  PERFORM FROM stockade.resource r, stockade.meta m
    WHERE r.name = named AND r.token = present.token AND r.state = 1
      AND stockade.is_here(m.identity, m.timeline) FOR NO KEY UPDATE OF r;
  IF NOT FOUND THEN
    PERFORM stockade.judge(ARRAY[named], ARRAY[token]);
  END IF;
END
$$;

-- For drivers that do not say what types their parameters have.
CREATE FUNCTION stockade.present(resource text, token text) RETURNS void
  LANGUAGE plpgsql AS $$
BEGIN
  PERFORM stockade.present(resource, token::bigint);
END
$$;

CREATE FUNCTION stockade.present(resources text[], tokens bigint[]) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  names bytea[] := ARRAY(SELECT convert_to(name, 'UTF8')
                         FROM unnest(resources) WITH ORDINALITY AS r(name, at) ORDER BY at);
BEGIN
  IF cardinality(names) = 0 OR cardinality(names) IS DISTINCT FROM cardinality(tokens) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = 'present() takes one or more resources, and as many tokens';
  END IF;
  PERFORM stockade.present_all(names, tokens);
END
$$;

-- Guards: may rows with these keys change now? Called by the triggers, as the definer.
CREATE FUNCTION stockade.check_keys(prefix text, keys text[]) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE
  names bytea[];
  tokens int8[];
BEGIN
  IF array_position(keys, NULL) IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'ST003',
      MESSAGE = 'GUARDED the key of a guarded row is NULL, and names no resource';
  ELSIF coalesce(current_setting('stockade.claims', true), '') = '' THEN
    PERFORM stockade.refuse('NOTOKEN', prefix || keys[1]);
  END IF;
  SELECT array_agg(k.name), array_agg(c.token) INTO names, tokens
    FROM (SELECT convert_to(prefix || k, 'UTF8') AS name FROM unnest(keys) AS k) AS k
    LEFT JOIN (SELECT decode(split_part(c, '=', 1), 'hex') AS name,
                 split_part(c, '=', 2)::int8 AS token
               FROM string_to_table(current_setting('stockade.claims'), ' ') AS c
               WHERE c <> '') AS c USING (name);
  IF array_position(tokens, NULL) IS NOT NULL THEN
    PERFORM stockade.refuse('GUARDED', stockade.text(names[array_position(tokens, NULL)]));
  END IF;
  PERFORM stockade.judge(names, tokens);
END
$$;

-- Guards: what one consists of.

-- A table, its partitions, and whoever inherits from it, parents first.
CREATE FUNCTION stockade.tree(root regclass) RETURNS TABLE(relation regclass, depth int4)
  LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tree(relation, depth) AS (
    SELECT root::oid, 0 UNION
    SELECT inhrelid, depth + 1 FROM pg_inherits JOIN tree ON inhparent = relation)
  SELECT relation::regclass, max(depth) FROM tree GROUP BY 1 ORDER BY 2, 1
$$;

-- The triggers, as pg_get_triggerdef() tells them.
--
-- By statement: triggers with the rows before and after, judged together; ten thousand rows cost
-- little more than one. Only a trigger on the table that a statement names sees its rows so. So
-- this is for a table without parents and partitions, and `bolt` makes sure that it gets no parent:
-- PostgreSQL lets no table with such a row trigger become a partition or a child. `row` is for the
-- apply worker of logical replication, which fires no triggers by statement. These two fire where
-- changes are applied only, and cost nothing elsewhere; a WHEN would be compiled by each statement.
--
-- By row, for trees: a new partition gets the trigger by itself.
CREATE FUNCTION stockade.guard_triggers(guard stockade.guard)
  RETURNS TABLE(relation regclass, name text, fires text, sql text)
  LANGUAGE sql STABLE AS $$
  SELECT t.relation, n.name, part.fires, format('CREATE TRIGGER %I %s ON %s.%I %s EXECUTE FUNCTION '
    'stockade.guard_%s()', n.name, part.event, c.relnamespace::regnamespace, c.relname, part.rows,
    guard.id)
  FROM stockade.tree(guard.relation) t
  JOIN pg_class c ON c.oid = t.relation,
  (VALUES
    ('row', true, 'ALWAYS', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('truncate', true, 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT'),
    ('insert', false, 'ALWAYS', 'AFTER INSERT',
     'REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('update', false, 'ALWAYS', 'AFTER UPDATE',
     'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT'),
    ('delete', false, 'ALWAYS', 'AFTER DELETE',
     'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT'),
    ('row', false, 'REPLICA', 'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW'),
    ('bolt', false, 'REPLICA', 'AFTER DELETE',
     'REFERENCING OLD TABLE AS old_rows FOR EACH ROW WHEN (false)'),
    ('truncate', false, 'ALWAYS', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT')
  ) AS part(name, by_row, fires, event, rows),
  LATERAL (SELECT concat('stockade_guard_', guard.id, '_', part.name)) AS n(name)
  WHERE part.by_row = guard.by_row AND (guard.by_row OR t.depth = 0)
  ORDER BY t.depth
$$;

-- The body of its function. Keys become text by their types' own functions, whatever casts there
-- are.
CREATE FUNCTION stockade.guard_body(guard stockade.guard) RETURNS text
  LANGUAGE sql IMMUTABLE AS $$
  SELECT format($body$
DECLARE
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
        AND stockade.is_here(m.identity, m.timeline) FOR NO KEY UPDATE OF r;
  END IF;
  IF cardinality(keys) > 1 OR (cardinality(keys) = 1 AND NOT FOUND) THEN
    PERFORM stockade.check_keys(%1$L, keys);
  END IF;
  RETURN NULL;
END
$body$, guard.prefix, guard.key)
$$;

-- What is wrong with guards.
CREATE FUNCTION stockade.guard_flaws() RETURNS TABLE(id int4, kind text, problem text)
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
  SELECT g.id, 'column gone', format('%s has no column %I any more', g.relation, g.key)
    FROM whole g WHERE NOT EXISTS(
      SELECT FROM pg_attribute a WHERE a.attrelid = g.relation AND a.attname = g.key AND attnum > 0)
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
    FROM wanted WHERE pg_get_triggerdef(trigger) <> sql
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

-- Guards: made and removed.

-- A table by its name as in SQL. Without a schema it is the only one of that name, or public's.
CREATE FUNCTION stockade.table_named(name text) RETURNS regclass
  LANGUAGE plpgsql AS $$
DECLARE
  words text[] := parse_ident(name);
  found regclass[];
BEGIN
  SELECT array_agg(c.oid::regclass ORDER BY n.nspname <> 'public') INTO found
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = words[cardinality(words)] AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND (n.nspname = words[1] OR cardinality(words) = 1)
      AND n.nspname NOT IN ('stockade', 'information_schema') AND n.nspname NOT LIKE 'pg\_%';
  IF cardinality(words) > 2 OR found IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = format('there is no table %s', name);
  ELSIF cardinality(found) > 1 AND found[1] <> coalesce(to_regclass(
      format('public.%I', words[1])), 0) THEN
    RAISE EXCEPTION USING ERRCODE = '42P09',
      MESSAGE = format('there are several tables %s: name it with its schema', name);
  END IF;
  RETURN found[1];
END
$$;

-- May this table be guarded by this column? Returns the guard as it would be.
CREATE FUNCTION stockade.guard_planned(relation regclass, key text, prefix text)
  RETURNS stockade.guard
  LANGUAGE plpgsql AS $$
DECLARE
  class pg_class;
  foreigner pg_class;
  attribute pg_attribute;
  nameless boolean := false;
  guard stockade.guard;
BEGIN
  SELECT * INTO class FROM pg_class WHERE oid = relation;
  SELECT * INTO attribute FROM pg_attribute
    WHERE attrelid = relation AND attname = (parse_ident(key))[1] AND attnum > 0;
  IF class.relkind NOT IN ('r', 'p') OR class.relpersistence = 't' THEN
    RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('%s is not a table', relation);
  END IF;
  SELECT c.* INTO foreigner FROM stockade.tree(relation) t JOIN pg_class c ON c.oid = t.relation
    WHERE NOT pg_has_role(c.relowner, 'USAGE') LIMIT 1;
  IF foreigner.oid IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format(
      'table %s belongs to another role: GRANT %I TO %I', foreigner.oid::regclass,
      pg_get_userbyid(foreigner.relowner), current_user);
  ELSIF EXISTS(SELECT FROM stockade.tree(relation) t JOIN pg_class c ON c.oid = t.relation
               WHERE c.relkind NOT IN ('r', 'p')) THEN
    RAISE EXCEPTION USING ERRCODE = '42809',
      MESSAGE = format('%s has a foreign table below it, whose rows others change', relation);
  ELSIF octet_length(convert_to(prefix, 'UTF8')) > 400 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a prefix has at most 400 bytes';
  ELSIF attribute.attname IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42703',
      MESSAGE = format('table %s has no column %s', relation, key);
  ELSIF attribute.atttypid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype,
      'text'::regtype, 'varchar'::regtype, 'uuid'::regtype) THEN
    RAISE EXCEPTION USING ERRCODE = '42804', MESSAGE = format('column %s of %s is %s: a guard '
      'takes int2, int4, int8, text, varchar or uuid', key, relation, attribute.atttypid::regtype);
  ELSIF EXISTS(SELECT FROM pg_collation WHERE oid = attribute.attcollation
               AND NOT collisdeterministic) THEN
    RAISE EXCEPTION USING ERRCODE = '42P22', MESSAGE = format('column %s of %s has a collation '
      'that is not deterministic: keys that are equal there would be two resources', key, relation);
  END IF;
  IF NOT attribute.attnotnull OR attribute.attcollation <> 0 THEN
    EXECUTE format('SELECT EXISTS(SELECT FROM %s WHERE %I IS NULL OR '
      'octet_length(convert_to(concat(%L, %2$I), ''UTF8'')) NOT BETWEEN 1 AND 512)',
      relation, attribute.attname, prefix) INTO nameless;
  END IF;
  IF nameless THEN
    RAISE EXCEPTION USING ERRCODE = '23514', MESSAGE = format('rows of %s have a %s that names no '
      'resource: it must not be NULL, and with the prefix have 1 to 512 bytes', relation, key);
  END IF;
  guard.relation := relation;
  guard.name := CASE WHEN class.relnamespace = 'public'::regnamespace
    THEN format('%I', class.relname)
    ELSE format('%s.%I', class.relnamespace::regnamespace, class.relname) END;
  guard.key := attribute.attname;
  guard.type := attribute.atttypid;
  guard.prefix := prefix;
  guard.by_row := class.relkind = 'p' OR EXISTS(SELECT FROM pg_inherits
    WHERE relation IN (inhrelid, inhparent));
  RETURN guard;
END
$$;

-- Rows of the table belong to the resource prefix || column. The same again restores one that is
-- damaged. The definer has to be in the role that owns the table.
CREATE FUNCTION stockade.guard_create("table" text, "column" text, prefix text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET quote_all_identifiers = off AS $$
DECLARE
  target regclass := stockade.table_named("table");
  guard stockade.guard;
  old stockade.guard;
  part record;
BEGIN
  guard := stockade.guard_planned(target, "column", prefix);
  EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', target);
  SELECT * INTO old FROM stockade.guard g WHERE g.relation = target;
  IF old.id IS NOT NULL THEN
    IF (old.key, old.prefix) <> (guard.key, guard.prefix)
        OR NOT EXISTS(SELECT FROM stockade.guard_flaws() f WHERE f.id = old.id) THEN
      RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('table %s is guarded already, by '
        'column %s and prefix %s; GUARD DROP it first', target, old.key, old.prefix);
    END IF;
    PERFORM stockade.guard_drop("table");
  END IF;
  INSERT INTO stockade.guard(relation, name, key, type, prefix, by_row)
    VALUES(target, guard.name, guard.key, guard.type, prefix, guard.by_row) RETURNING * INTO guard;
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

CREATE FUNCTION stockade.guard_drop("table" text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET client_min_messages = warning AS $$
DECLARE
  guard stockade.guard;
BEGIN
  SELECT * INTO guard FROM stockade.guard g WHERE g.name = "table"
    AND NOT EXISTS(SELECT FROM pg_class c WHERE c.oid = g.relation);
  IF guard.id IS NULL THEN
    SELECT * INTO guard FROM stockade.guard g WHERE g.relation = stockade.table_named("table");
  END IF;
  IF guard.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('table %s is not guarded', "table");
  END IF;
  EXECUTE format('DROP FUNCTION IF EXISTS stockade.guard_%s() CASCADE', guard.id);
  DELETE FROM stockade.guard g WHERE g.id = guard.id;
END
$$;

-- For the daemon: NULL, or why not. Nothing has changed then. Without a column it is to be dropped.
CREATE FUNCTION stockade.guard_try("table" bytea, "column" bytea, prefix bytea) RETURNS text
  LANGUAGE plpgsql AS $$
DECLARE
  message text;
  hint text;
BEGIN
  IF "column" IS NULL THEN
    PERFORM stockade.guard_drop(convert_from("table", 'UTF8'));
  ELSE
    PERFORM stockade.guard_create(convert_from("table", 'UTF8'), convert_from("column", 'UTF8'),
                                  convert_from(prefix, 'UTF8'));
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
  RETURN concat_ws('; ', message, nullif(hint, ''));
END
$$;

-- The role of programs that may present tokens, and no more. Whoever may not create roles leaves
-- that to the operator, who then calls this.
CREATE FUNCTION stockade.grant_app() RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF to_regrole('stockade_app') IS NULL THEN
    BEGIN
      CREATE ROLE stockade_app NOLOGIN;
    EXCEPTION WHEN insufficient_privilege THEN
      RETURN;
    END;
  END IF;
  GRANT USAGE ON SCHEMA stockade TO stockade_app;
  GRANT EXECUTE ON FUNCTION stockade.present(bytea, bigint), stockade.present(text, bigint),
    stockade.present(text, text), stockade.present(text[], bigint[]), stockade.text(bytea)
    TO stockade_app;
  GRANT SELECT(resource, state, owner, holds, ttl_ms) ON stockade.fences TO stockade_app;
  GRANT SELECT ON stockade.strings, stockade.fields TO stockade_app;
END
$$;

-- The functions that the guards rest on, as they were made.
CREATE TABLE stockade.code(signature text PRIMARY KEY, hash text NOT NULL);
CREATE FUNCTION stockade.code_hash(oid) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT md5(concat(prosrc, prosecdef, proconfig, proowner = (
    SELECT nspowner FROM pg_namespace WHERE nspname = 'stockade'))) FROM pg_proc WHERE oid = $1
$$;

-- What is wrong with guards, and with what they rest on.
CREATE FUNCTION stockade.guard_problems() RETURNS TABLE(kind text, problem text)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT kind, problem FROM stockade.guard_flaws()
  UNION ALL
  SELECT 'prepared transactions', format('max_prepared_transactions is %s: a prepared transaction '
      'keeps the fences that it has presented locked after its session has ended',
      current_setting('max_prepared_transactions'))
    WHERE current_setting('max_prepared_transactions') <> '0'
  UNION ALL
  SELECT 'prepared transaction', format('transaction ''%s'' has been prepared since %s, and keeps '
      'what it has locked: COMMIT PREPARED or ROLLBACK PREPARED', gid, prepared)
    FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'function altered', format('function %s is not as it was made', c.signature)
    FROM stockade.code c LEFT JOIN pg_proc p ON p.oid = to_regprocedure(c.signature)
    WHERE c.hash IS DISTINCT FROM stockade.code_hash(p.oid)
  UNION ALL
  SELECT 'right too many', format('%s may %s %s',
      CASE a.grantee WHEN 0 THEN 'everybody' ELSE a.grantee::regrole::text END,
      a.privilege_type, o.what)
    FROM (
      SELECT format('in schema %s', nspname), nspacl, nspowner, 'n'::"char" FROM pg_namespace
        WHERE nspname = 'stockade'
      UNION ALL
      SELECT format('on %s', oid::regclass), relacl, relowner, 'r' FROM pg_class
        WHERE relnamespace = 'stockade'::regnamespace AND relkind IN ('r', 'v', 'S')
      UNION ALL
      SELECT format('on column %I of %s', attname, attrelid::regclass), attacl, relowner,
          CASE WHEN relname = 'fences' AND attname <> 'token' THEN 'v' ELSE 'c' END::"char"
        FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace = 'stockade'::regnamespace AND attacl IS NOT NULL
      UNION ALL
      SELECT format('on %s', p.oid::regprocedure), coalesce(proacl, acldefault('f', proowner)),
          proowner, CASE WHEN prosecdef AND proowner = nspowner THEN 'f' ELSE 'x' END::"char"
        FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'stockade'
    ) AS o(what, acl, owner, kind), aclexplode(o.acl) a
    WHERE a.grantee <> o.owner AND a.grantee IN (0, coalesce(to_regrole('stockade_app'), 0))
      AND NOT (a.grantee <> 0 AND (
        (o.kind = 'n' AND a.privilege_type = 'USAGE')
        OR (o.kind = 'v' AND a.privilege_type = 'SELECT')
        OR (o.what LIKE 'on stockade.present(%')
        OR (o.what IN ('on stockade.strings', 'on stockade.fields')
            AND a.privilege_type = 'SELECT')))
      AND o.kind <> 'x'
  UNION ALL
  SELECT 'role too mighty', format('stockade_app is in role %s, which %s', r.rolname, why)
    FROM (
      SELECT nspowner, 'owns schema stockade' FROM pg_namespace WHERE nspname = 'stockade'
      UNION SELECT relowner, format('owns the guarded table %s', g.relation)
        FROM stockade.guard g JOIN pg_class c ON c.oid = g.relation
      UNION SELECT oid, 'is a superuser' FROM pg_roles WHERE rolsuper
    ) AS m(role, why) JOIN pg_roles r ON r.oid = m.role
    WHERE to_regrole('stockade_app') IS NOT NULL
      AND pg_has_role(to_regrole('stockade_app'), r.oid, 'MEMBER')
  UNION ALL
  SELECT 'no right to repair', format('the owner of schema stockade is not in the role %s, which '
      'owns the guarded table %s', c.relowner::regrole, g.relation)
    FROM stockade.guard g JOIN pg_class c ON c.oid = g.relation, pg_namespace n
    WHERE n.nspname = 'stockade' AND NOT pg_has_role(nspowner, c.relowner, 'USAGE')
$$;

REVOKE ALL ON FUNCTION stockade.refuse, stockade.verdict, stockade.is_here, stockade.claimed,
  stockade.claim, stockade.judge, stockade.present_all, stockade.present(bytea, bigint),
  stockade.present(text, bigint), stockade.present(text, text),
  stockade.present(text[], bigint[]), stockade.check_keys,
  stockade.tree, stockade.guard_triggers, stockade.guard_body, stockade.guard_flaws,
  stockade.table_named, stockade.guard_planned, stockade.guard_create, stockade.guard_drop,
  stockade.guard_try, stockade.grant_app, stockade.code_hash, stockade.guard_problems
  FROM PUBLIC;
INSERT INTO stockade.code SELECT oid::regprocedure::text, stockade.code_hash(oid) FROM pg_proc
  WHERE pronamespace = 'stockade'::regnamespace AND proname IN ('refuse', 'verdict', 'is_here',
    'claimed', 'claim', 'judge', 'present_all', 'present', 'check_keys', 'text');
SELECT stockade.grant_app();
