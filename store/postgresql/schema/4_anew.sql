-- SPDX-License-Identifier: Apache-2.0
-- A server that may stand on older data than what was served before: promoted, restored, copied, or
-- started anew on a base backup. Released steps are never edited (schema.c).

-- `server`: who served the store last. `ended`: no token up to this one lives. It ends all leases
-- at once, however many there are and whoever has their rows locked; a row may say `live` (1) until
-- its next grant.
ALTER TABLE stockade.meta ADD COLUMN server text, ADD COLUMN ended int8 NOT NULL DEFAULT 0;

-- The state that counts.
CREATE FUNCTION stockade.state_of(token int8, state int2, ended int8) RETURNS int2
  LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN state = 1 AND token <= ended THEN 3::int2 ELSE state END
$$;

CREATE OR REPLACE VIEW stockade.fences(resource, token, state, owner, holds, ttl_ms)
  WITH (security_barrier) AS
  SELECT stockade.text(name), token,
    CASE state WHEN 1 THEN CASE WHEN token > ended THEN 'live' ELSE 'revoked' END
      WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,
    stockade.text(owner),
    CASE WHEN token <= ended THEN 0 ELSE holds END, ttl_ms
  FROM stockade.resource, stockade.meta WHERE state <> 0 AND stockade.may_see();

-- A server that was started anew has not been looked at yet, either: a daemon has to find out
-- whether it stands on older data.
DROP FUNCTION stockade.is_here;
CREATE FUNCTION stockade.is_here(identity text, server text) RETURNS boolean
  LANGUAGE sql VOLATILE AS $$
  SELECT identity = concat_ws('/', current_setting('stockade.here', true),
      'stockade.resource'::regclass::oid)
    AND server = concat_ws('/', left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
      extract(epoch FROM pg_postmaster_start_time()))
$$;

CREATE OR REPLACE FUNCTION stockade.judge(names bytea[], tokens int8[]) RETURNS void
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
  IF (SELECT stockade.is_here(identity, server) FROM stockade.meta) IS NOT TRUE THEN
    PERFORM stockade.refuse('STORE', NULL);
  END IF;
  SELECT count(*), min(ARRAY[verdict, stockade.text(name)]) FILTER (WHERE verdict IS NOT NULL)
    INTO found, bad
    FROM (SELECT r.name, stockade.verdict(c.token, r.token,
            stockade.state_of(r.token, r.state, m.ended)) AS verdict
          FROM unnest(names, tokens) AS c(name, token) JOIN stockade.resource r ON r.name = c.name,
            stockade.meta m
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

CREATE OR REPLACE FUNCTION stockade.present(resource text, token bigint) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named bytea := convert_to(resource, 'UTF8');
  void text := stockade.claim(concat(' ', encode(named, 'hex'), '=', token, ' '));
BEGIN
  PERFORM FROM stockade.resource r, stockade.meta m
    WHERE r.name = named AND r.token = present.token AND r.state = 1 AND r.token > m.ended
      AND stockade.is_here(m.identity, m.server) FOR NO KEY UPDATE OF r;
  IF NOT FOUND THEN
    PERFORM stockade.judge(ARRAY[named], ARRAY[token]);
  END IF;
END
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

CREATE OR REPLACE FUNCTION stockade.guard_body(guard stockade.guard) RETURNS text
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
        AND r.token > m.ended AND stockade.is_here(m.identity, m.server) FOR NO KEY UPDATE OF r;
  END IF;
  IF cardinality(keys) > 1 OR (cardinality(keys) = 1 AND NOT FOUND) THEN
    PERFORM stockade.check_keys(%1$L, keys);
  END IF;
  RETURN NULL;
END
$body$, guard.prefix, guard.key)
$$;

-- The functions of the guards that are there.
DO $$
DECLARE
  guard stockade.guard;
BEGIN
  FOR guard IN SELECT g.* FROM stockade.guard g
      WHERE to_regprocedure(format('stockade.guard_%s()', g.id)) IS NOT NULL LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION stockade.guard_%s() RETURNS trigger '
      'LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', guard.id,
      stockade.guard_body(guard));
  END LOOP;
END
$$;

REVOKE ALL ON FUNCTION stockade.state_of, stockade.is_here FROM PUBLIC;
INSERT INTO stockade.code SELECT oid::regprocedure::text, stockade.code_hash(oid) FROM pg_proc
  WHERE pronamespace = 'stockade'::regnamespace AND proname IN ('state_of', 'refuse', 'is_here',
    'judge', 'present')
  ON CONFLICT (signature) DO UPDATE SET hash = excluded.hash;

-- The older version's rule has found nothing wrong with this server: programs go on meanwhile.
UPDATE stockade.meta SET server = stockade.server()
  WHERE identity = stockade.identity() AND timeline = stockade.timeline();
