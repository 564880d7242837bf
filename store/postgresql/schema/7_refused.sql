-- SPDX-License-Identifier: Apache-2.0
-- What guards and present() refuse, seen. A refusal undoes its transaction, and with it whatever
-- row would tell of it. A sequence outlives that: so each refusal is counted by one, and two more
-- of a ring say what it was. The daemon looks once a second (watch.c).
--
--   refused            how many there were
--   refused_N_what     (resource's id * 16 + code) * 1024 + number     code: of refusal_codes()
--   refused_N_token    token * 1024 + number                           0: none was presented
--
-- The number, modulo 1024, tells whether the two belong together: two refusals may meet in a slot.
-- Of more than 16 between two looks the latest are seen, and all are counted. Not seen: those of
-- names that are not UTF-8, but for the count. Released steps are never edited (schema.c).

CREATE SEQUENCE stockade.refused;
CREATE SEQUENCE stockade.refused_0_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_0_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_1_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_1_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_2_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_2_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_3_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_3_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_4_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_4_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_5_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_5_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_6_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_6_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_7_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_7_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_8_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_8_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_9_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_9_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_10_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_10_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_11_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_11_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_12_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_12_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_13_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_13_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_14_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_14_token MINVALUE 0;
CREATE SEQUENCE stockade.refused_15_what MINVALUE 0;
CREATE SEQUENCE stockade.refused_15_token MINVALUE 0;

CREATE FUNCTION stockade.refusal_codes() RETURNS text[]
  LANGUAGE sql IMMUTABLE AS $$
  SELECT ARRAY['STALE', 'UNKNOWN', 'GUARDED', 'NOTOKEN']
$$;

-- As before, once it is told. A statement that came by a daemon (its connections' names begin so)
-- is told of by the daemon.
CREATE FUNCTION stockade.refuse(verdict text, resource text, token int8) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE
  code int8 := array_position(stockade.refusal_codes(),
    CASE split_part(verdict, ' ', 1) WHEN 'KEY' THEN 'GUARDED'
      ELSE split_part(verdict, ' ', 1) END);
  number int8;
BEGIN
  IF code IS NOT NULL AND current_setting('application_name') NOT LIKE 'stockade %' THEN
    number := nextval('stockade.refused');
    PERFORM setval(format('stockade.refused_%s_what', number % 16)::regclass,
      (coalesce((SELECT id FROM stockade.resource r
                 WHERE r.name = convert_to(refuse.resource, 'UTF8')), 0) * 16 + code) * 1024
      + number % 1024);
    PERFORM setval(format('stockade.refused_%s_token', number % 16)::regclass,
      CASE WHEN token BETWEEN 0 AND 9007199254740991 THEN token ELSE 0 END * 1024
      + number % 1024);
  END IF;
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

CREATE OR REPLACE FUNCTION stockade.refuse(verdict text, resource text) RETURNS void
  LANGUAGE plpgsql AS $$
BEGIN
  PERFORM stockade.refuse(verdict, resource, NULL);
END
$$;

-- As before; a refusal is told with its token.
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
  SELECT count(*), min(ARRAY[verdict, stockade.text(name), token::text])
      FILTER (WHERE verdict IS NOT NULL)
    INTO found, bad
    FROM (SELECT r.name, c.token, stockade.verdict(c.token, r.token,
            stockade.state_of(r.token, r.state, m.ended)) AS verdict
          FROM unnest(names, tokens) AS c(name, token) JOIN stockade.resource r ON r.name = c.name,
            stockade.meta m
          ORDER BY r.id FOR NO KEY UPDATE OF r) AS fence;
  IF bad IS NOT NULL THEN
    PERFORM stockade.refuse(bad[1], bad[2], bad[3]::int8);
  ELSIF found < cardinality(names) THEN
    PERFORM stockade.refuse('UNKNOWN', stockade.text(name), token)
      FROM unnest(names, tokens) AS n(name, token)
      WHERE NOT EXISTS(SELECT FROM stockade.resource r WHERE r.name = n.name);
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'a resource has just been made anew',
      HINT = 'Try the transaction again.';
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION stockade.judge_row(prefix text, key text, token int8) RETURNS void
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
      PERFORM stockade.refuse(verdict, stockade.text(named), token);
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

-- What was refused after the one of this number, in order; then a row that has the newest number
-- only. (A slot is left out until both of its sequences are written.)
CREATE FUNCTION stockade.refusals(after int8)
  RETURNS TABLE(number int8, code text, name bytea, token int8, newest int8)
  LANGUAGE sql VOLATILE AS $$
  WITH last AS (SELECT coalesce(pg_sequence_last_value('stockade.refused'), 0) AS number)
  SELECT s.number, (stockade.refusal_codes())[what.value / 1024 % 16], r.name, token.value / 1024,
      r.token
    FROM last, generate_series(greatest(refusals.after, last.number - 16) + 1, last.number)
        AS s(number),
      LATERAL (SELECT pg_sequence_last_value(
        format('stockade.refused_%s_what', s.number % 16)::regclass) AS value) AS what,
      LATERAL (SELECT pg_sequence_last_value(
        format('stockade.refused_%s_token', s.number % 16)::regclass) AS value) AS token,
      stockade.resource r
    WHERE what.value % 1024 = s.number % 1024 AND token.value % 1024 = s.number % 1024
      AND r.id = what.value / 16384
  UNION ALL SELECT last.number, NULL, NULL, NULL, NULL FROM last
  ORDER BY 1, 2
$$;

REVOKE ALL ON FUNCTION stockade.refusal_codes, stockade.refuse(text, text, int8), stockade.refusals
  FROM PUBLIC;
INSERT INTO stockade.code SELECT oid::regprocedure::text, stockade.code_hash(oid) FROM pg_proc
  WHERE pronamespace = 'stockade'::regnamespace AND proname IN ('refuse', 'refusal_codes',
    'judge', 'judge_row')
  ON CONFLICT (signature) DO UPDATE SET hash = excluded.hash;
