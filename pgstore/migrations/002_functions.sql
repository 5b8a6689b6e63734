-- The functions. Each has a search_path of its own, so that an operator or a
-- function which somebody else has made in a schema of the caller's is never
-- used; and each is called with exactly the types of its parameters, so that no
-- overload is a better match. Those of the first version are replaced.
DROP FUNCTION IF EXISTS @acquire_lock@(varchar, varchar, integer, jsonb)
--
DROP FUNCTION IF EXISTS @acquire_lock_token@(varchar, varchar, integer, jsonb)
--
DROP FUNCTION IF EXISTS @extend_lock@(varchar, varchar, integer)
--
DROP FUNCTION IF EXISTS @release_lock@(varchar, varchar)
--
DROP FUNCTION IF EXISTS @sweep_locks@(interval, integer)
--
DROP FUNCTION IF EXISTS @holdfast_acquire@(text, text, text, bigint, bigint, jsonb, text, boolean)
--
DROP FUNCTION IF EXISTS @holdfast_await@(text[], bigint)
--
-- How a change is committed: an internal part of the functions below. A commit
-- that does not wait for its standby any more is reported by a warning only.
CREATE OR REPLACE FUNCTION @holdfast_commit@(p_commit text, p_standby boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    IF p_commit <> '' THEN
        PERFORM set_config('synchronous_commit', p_commit, true);
    END IF;
    IF p_standby AND current_setting('synchronous_standby_names') = '' THEN
        RAISE EXCEPTION 'synchronous_standby_names of the server is empty' USING ERRCODE = 'HF003';
    END IF;
    IF p_commit NOT IN ('', 'off', 'local') THEN
        PERFORM set_config('client_min_messages', 'warning', true);
    END IF;
END $holdfast$
--
-- One attempt to take a lock. One that is refused writes nothing. Times are in
-- microseconds. The clock is read after the row has been waited for, and while
-- the statement runs: the beginning of a transaction may be long ago. A row that
-- another transaction has locked is waited for no longer than a commit takes;
-- then row_open is true, and the rest describes the row as it was committed.
CREATE OR REPLACE FUNCTION @holdfast_acquire@(
    p_name text, p_owner text, p_holder text, p_ttl bigint, p_floor bigint, p_metadata jsonb, p_commit text, p_standby boolean,
    OUT granted bigint, OUT is_new boolean, OUT row_open boolean, OUT held_token bigint, OUT held_by text, OUT held_since bigint,
    OUT held_until bigint, OUT held_left bigint, OUT held_kept boolean, OUT held_metadata text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' AS $holdfast$
DECLARE
    v_ttl   CONSTANT interval := p_ttl * interval '1 microsecond';
    v_owner text;
    waits   integer := 0;
BEGIN
    IF p_commit <> '' OR p_standby THEN
        PERFORM @holdfast_commit@(p_commit, p_standby);
    END IF;
    is_new := false;
    row_open := false;
    FOR attempt IN 1..100 LOOP
        BEGIN
            -- Free: take it.
            UPDATE @table@ AS t
               SET holder_id = p_owner, holder = p_holder, metadata = coalesce(p_metadata, '{}'), kept_by = NULL,
                   (acquired_at, granted_at, expires_at, token) =
                   (SELECT c.now, c.now, c.now + v_ttl, greatest(t.token + 1, t.last_token + 1, (extract(epoch FROM c.now) * 1000000)::bigint, p_floor)
                      FROM (SELECT clock_timestamp() AS now) AS c)
             WHERE t.lock_name = p_name AND t.expires_at <= clock_timestamp()
            RETURNING t.token INTO granted;
            IF FOUND THEN
                IF p_floor > extract(epoch FROM clock_timestamp()) * 1000000 + 86400000000 THEN
                    RAISE EXCEPTION 'the floor of the token is too far above the clock' USING ERRCODE = 'HF005';
                ELSIF granted > 9007199254740992 THEN
                    RAISE EXCEPTION 'the last token of the lock is above 2^53 - 1' USING ERRCODE = 'HF002';
                ELSIF granted > 9007199254740991 THEN
                    RAISE EXCEPTION 'the tokens of the lock are used up' USING ERRCODE = 'HF001';
                END IF;
                RETURN;
            END IF;
            SELECT t.holder_id, @record@
              INTO v_owner, held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata
              FROM @table@ AS t WHERE t.lock_name = p_name;
            IF NOT FOUND THEN
                -- Never taken, or forgotten since.
                INSERT INTO @table@ AS t (lock_name, holder_id, holder, metadata, acquired_at, granted_at, expires_at, token, kept_by, awaited_until)
                SELECT p_name, p_owner, p_holder, coalesce(p_metadata, '{}'), c.now, c.now, c.now + v_ttl,
                       greatest((extract(epoch FROM c.now) * 1000000)::bigint, p_floor), NULL, NULL
                  FROM (SELECT clock_timestamp() AS now) AS c
                ON CONFLICT (lock_name) DO NOTHING
                RETURNING t.token INTO granted;
                IF FOUND THEN
                    IF p_floor > extract(epoch FROM clock_timestamp()) * 1000000 + 86400000000 THEN
                        RAISE EXCEPTION 'the floor of the token is too far above the clock' USING ERRCODE = 'HF005';
                    END IF;
                    is_new := true;
                    RETURN;
                END IF;
            ELSIF v_owner = p_owner THEN
                -- A repetition. A hold that was written by hand has no token yet.
                UPDATE @table@ AS t
                   SET expires_at = greatest(t.expires_at, clock_timestamp() + v_ttl), granted_at = t.acquired_at,
                       token = CASE WHEN t.granted_at = t.acquired_at THEN t.token
                               ELSE greatest(t.token + 1, t.last_token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, p_floor) END
                 WHERE t.lock_name = p_name AND t.holder_id = p_owner AND t.expires_at > clock_timestamp()
                RETURNING t.token INTO granted;
                IF FOUND THEN
                    RETURN;
                END IF;
            ELSIF held_left > 0 THEN
                granted := 0;
                RETURN;
            END IF;
        EXCEPTION
            WHEN unique_violation THEN
                NULL; -- Another index of the table has found the row of another transaction first.
            WHEN lock_not_available THEN
                -- It may have been something else than the row, when the server is busy. A
                -- row that another transaction is about to insert cannot be seen.
                waits := waits + 1;
                PERFORM FROM @table@ AS t WHERE t.lock_name = p_name FOR NO KEY UPDATE SKIP LOCKED;
                IF NOT FOUND THEN
                    SELECT @record@
                      INTO held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata
                      FROM @table@ AS t WHERE t.lock_name = p_name;
                    IF FOUND OR waits > 1 THEN
                        granted := 0;
                        row_open := true;
                        RETURN;
                    END IF;
                END IF;
        END;
    END LOOP;
    RAISE EXCEPTION 'the lock changes hands too fast' USING ERRCODE = '40001';
END $holdfast$
--
-- Prolongs holds, which come sorted by name. The answer has a letter for each:
-- r renewed, l lost, b busy: the row is locked by another transaction. No row is
-- waited for, since one that somebody has locked must not cost the other locks.
CREATE OR REPLACE FUNCTION @holdfast_renew@(p_names text[], p_owners text[], p_ttls bigint[], p_commit text, p_standby boolean)
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    outcomes text := '';
BEGIN
    IF p_commit <> '' OR p_standby THEN
        PERFORM @holdfast_commit@(p_commit, p_standby);
    END IF;
    FOR i IN 1..cardinality(p_names) LOOP
        PERFORM FROM @table@ AS t
          WHERE t.lock_name = p_names[i] AND t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp()
            FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE @table@ AS t
               SET expires_at = greatest(t.expires_at, clock_timestamp() + p_ttls[i] * interval '1 microsecond')
             WHERE t.lock_name = p_names[i];
            outcomes := outcomes || 'r';
        ELSE
            PERFORM FROM @table@ AS t
              WHERE t.lock_name = p_names[i] AND t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp();
            outcomes := outcomes || CASE WHEN FOUND THEN 'b' ELSE 'l' END;
        END IF;
    END LOOP;
    RETURN outcomes;
END $holdfast$
--
-- Ends a hold; with p_keep above zero nobody can take the name for so long.
CREATE OR REPLACE FUNCTION @holdfast_release@(p_name text, p_owner text, p_keep bigint, p_commit text,
    OUT ended boolean, OUT awaited boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@release_wait@' AS $holdfast$
BEGIN
    IF p_commit <> '' THEN
        PERFORM @holdfast_commit@(p_commit, false);
    END IF;
    UPDATE @table@ AS t
       SET holder_id = '', holder = NULL, metadata = '{}',
           acquired_at = CASE WHEN p_keep > 0 THEN t.acquired_at ELSE clock_timestamp() END,
           expires_at = CASE WHEN p_keep > 0 THEN clock_timestamp() + p_keep * interval '1 microsecond' ELSE @past@ END,
           kept_by = CASE WHEN p_keep > 0 THEN p_owner END
     WHERE t.lock_name = p_name AND t.expires_at > clock_timestamp() AND p_owner <> ''
       AND (t.holder_id = p_owner OR p_keep > 0 AND t.holder_id = '' AND t.kept_by = p_owner)
    RETURNING t.awaited_until > clock_timestamp() INTO awaited;
    ended := FOUND;
    awaited := coalesce(awaited, false);
END $holdfast$
--
-- Ends whatever hold or keep a name has, and describes it.
CREATE OR REPLACE FUNCTION @holdfast_break@(p_name text, p_commit text,
    OUT ended boolean, OUT awaited boolean, OUT held_token bigint, OUT held_by text, OUT held_since bigint, OUT held_until bigint,
    OUT held_left bigint, OUT held_kept boolean, OUT held_metadata text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@release_wait@' AS $holdfast$
BEGIN
    IF p_commit <> '' THEN
        PERFORM @holdfast_commit@(p_commit, false);
    END IF;
    SELECT t.awaited_until > clock_timestamp(), @record@
      INTO awaited, held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata
      FROM @table@ AS t WHERE t.lock_name = p_name AND t.expires_at > clock_timestamp() FOR UPDATE;
    ended := FOUND;
    awaited := coalesce(awaited, false);
    IF ended THEN
        UPDATE @table@ AS t
           SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = clock_timestamp(), expires_at = @past@
         WHERE t.lock_name = p_name;
    END IF;
END $holdfast$
--
-- Notes that somebody listens for the release of these names, which come sorted.
-- It is a hint, so that no commit waits for it. The answer has a letter for each:
-- m marked, b busy: the row is locked by another transaction. One such row is
-- waited for as an attempt waits, those after it hardly.
CREATE OR REPLACE FUNCTION @holdfast_await@(p_names text[], p_for bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' AS $holdfast$
DECLARE
    v_until  timestamptz := clock_timestamp() + p_for * interval '1 microsecond';
    v_soon   timestamptz := clock_timestamp() + p_for * interval '0.5 microsecond';
    outcomes text := '';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR i IN 1..cardinality(p_names) LOOP
        PERFORM FROM @table@ AS t WHERE t.lock_name = p_names[i] AND t.awaited_until > v_soon;
        IF NOT FOUND THEN
            BEGIN
                INSERT INTO @table@ AS t (lock_name, holder_id, holder, metadata, acquired_at, granted_at, expires_at, token, kept_by, awaited_until)
                VALUES (p_names[i], '', NULL, '{}', clock_timestamp(), NULL, @past@, 0, NULL, v_until)
                ON CONFLICT (lock_name) DO UPDATE SET awaited_until = v_until;
            EXCEPTION WHEN lock_not_available OR unique_violation THEN
                PERFORM set_config('lock_timeout', '1ms', true);
                outcomes := outcomes || 'b';
                CONTINUE;
            END;
        END IF;
        outcomes := outcomes || 'm';
    END LOOP;
    RETURN outcomes;
END $holdfast$
--
-- Deletes rows that have been free for p_idle, at most p_limit of them, and
-- returns how many. A row whose token the clock has not passed yet stays.
CREATE OR REPLACE FUNCTION @sweep_locks@(p_idle interval, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_idle  timestamptz := v_now - greatest(p_idle, interval '0');
    v_token bigint := (extract(epoch FROM v_now) * 1000000)::bigint;
    v_count integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM @table@ AS t
     WHERE t.lock_name IN (
        SELECT d.lock_name FROM @table@ AS d
         WHERE d.expires_at <= v_idle AND d.acquired_at <= v_idle AND greatest(d.token, d.last_token) < v_token
           AND (d.awaited_until IS NULL OR d.awaited_until < v_now)
         LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @sweep_locks@() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @sweep_locks@('1 hour'::interval, 10000::integer);
END $holdfast$
--
-- For every language: acquire_lock, acquire_lock_token, extend_lock, release_lock.
-- None has a default, since an overload without one would be a better match.
-- Takes a lock that is free, or extends one's own, and returns the fencing token;
-- null: it is held by somebody else, or a transaction has the row open.
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision, p_metadata jsonb)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_token bigint;
BEGIN
    IF p_lock_name IS NULL OR p_lock_name = '' OR p_holder_id IS NULL OR p_holder_id = '' THEN
        RAISE EXCEPTION 'a lock needs a name and a holder id' USING ERRCODE = '22023';
    ELSIF p_ttl_seconds IS NULL OR p_ttl_seconds NOT BETWEEN 0.01 AND 31536000 THEN
        RAISE EXCEPTION 'the TTL of a lock is 0.01 to 31536000 seconds' USING ERRCODE = '22023';
    ELSIF pg_column_size(p_metadata) > 8192 THEN
        RAISE EXCEPTION 'the metadata of a lock is larger than 8 kB' USING ERRCODE = '22023';
    END IF;
    SELECT a.granted INTO v_token
      FROM @holdfast_acquire@(p_lock_name, p_holder_id, NULL::text, (p_ttl_seconds * 1000000)::bigint, 0::bigint, p_metadata, ''::text, false) AS a;
    RETURN nullif(v_token, 0);
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds, '{}'::jsonb);
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text, p_ttl_seconds integer, p_metadata jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds::double precision, p_metadata);
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text, p_ttl_seconds integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds::double precision, '{}'::jsonb);
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, 30::double precision, '{}'::jsonb);
END $holdfast$
--
-- Takes a lock that is free, or extends one's own. False: somebody else has it.
CREATE OR REPLACE FUNCTION @acquire_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision, p_metadata jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds, p_metadata) IS NOT NULL;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds, '{}'::jsonb) IS NOT NULL;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds integer, p_metadata jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds::double precision, p_metadata) IS NOT NULL;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, p_ttl_seconds::double precision, '{}'::jsonb) IS NOT NULL;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @acquire_lock@(p_lock_name text, p_holder_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_lock_token@(p_lock_name, p_holder_id, 30::double precision, '{}'::jsonb) IS NOT NULL;
END $holdfast$
--
-- Extends one's own lock. False: it is lost. It is never taken anew.
CREATE OR REPLACE FUNCTION @extend_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@release_wait@' AS $holdfast$
BEGIN
    IF p_ttl_seconds IS NULL OR p_ttl_seconds NOT BETWEEN 0.01 AND 31536000 THEN
        RAISE EXCEPTION 'the TTL of a lock is 0.01 to 31536000 seconds' USING ERRCODE = '22023';
    END IF;
    UPDATE @table@ AS t
       SET expires_at = greatest(t.expires_at, clock_timestamp() + p_ttl_seconds * interval '1 second')
     WHERE t.lock_name = p_lock_name AND t.holder_id = p_holder_id AND p_holder_id <> '' AND t.expires_at > clock_timestamp();
    RETURN FOUND;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @extend_lock@(p_lock_name text, p_holder_id text, p_ttl_seconds integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @extend_lock@(p_lock_name, p_holder_id, p_ttl_seconds::double precision);
END $holdfast$
--
CREATE OR REPLACE FUNCTION @extend_lock@(p_lock_name text, p_holder_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @extend_lock@(p_lock_name, p_holder_id, 30::double precision);
END $holdfast$
--
-- Lets go of one's own lock, and has those who listen for it notified at the
-- commit. False: one did not hold it.
CREATE OR REPLACE FUNCTION @release_lock@(p_lock_name text, p_holder_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_ended   boolean;
    v_awaited boolean;
BEGIN
    SELECT r.ended, r.awaited INTO v_ended, v_awaited
      FROM @holdfast_release@(p_lock_name, p_holder_id, 0::bigint, ''::text) AS r;
    IF v_awaited THEN
        PERFORM pg_notify('@channel@', p_lock_name);
    END IF;
    RETURN v_ended;
END $holdfast$
