-- The verbs. Each takes arrays in the order of the names, and the usual plan locks their rows in
-- that order. If another plan does not, the server ends the deadlock. A name is changed under the
-- lock of its row, and an end is counted from the time at which that is locked. A function waits
-- for each row for lock_timeout at most, and returns whom to notify after the commit (see tell).
-- @verb@ is the language, with settings (verbSQL). Every column has its table in front: a bare name
-- is a variable.
--
CREATE OR REPLACE FUNCTION micros(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM p_time)::double precision * 1000000)::bigint $$
--
CREATE OR REPLACE FUNCTION span(p_micros bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT p_micros * interval '1 microsecond' $$
--
-- Makes the notice for an owner: the channel, the token, a hash of the name and the secret, and the
-- name.
CREATE OR REPLACE FUNCTION notice(p_channel text, p_name text, p_owner text, p_token bigint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT concat_ws(' ', p_channel, p_token, left(encode(sha256(convert_to(p_name, 'UTF8') || decode('00', 'hex') || convert_to(p_owner, 'UTF8')), 'hex'), 32), p_name)
$$
--
-- Describes a hold for people. A member of the metadata that is not a string becomes its JSON text.
-- Metadata that is not an object becomes one member, "value".
CREATE OR REPLACE FUNCTION described(e entries) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('name', e.name, 'holder', CASE WHEN NOT e.kept THEN e.holder END, 'token', e.token, 'since', micros(e.since),
        'left', (extract(epoch FROM e.expires - clock_timestamp())::double precision * 1000000)::bigint,
        'kept', e.kept, 'limit', e.lim, 'metadata', (
            SELECT jsonb_object_agg(m.key, m.value) FROM jsonb_each_text(CASE jsonb_typeof(e.metadata)
                       WHEN 'object' THEN e.metadata ELSE jsonb_build_object('value', e.metadata) END) AS m WHERE NOT e.kept AND e.metadata <> 'null'))
$$
--
-- Drops the entries of a name that have ended, and makes a hold of each place whose turn it is: the
-- holds are the longest prefix of the live entries whose length is within every limit in it. Only
-- acquire repeats this rule, for its own request. The result is whom to notify, without p_asker.
-- The caller has locked the row.
CREATE OR REPLACE FUNCTION settle(p_name text, p_asker text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now   CONSTANT timestamptz := clock_timestamp();
    v_told  text[] := '{}';
    v_holds bigint;
    v_least integer;
    v_first places;
BEGIN
    UPDATE locks AS l SET owner = NULL WHERE l.name = p_name AND l.owner IS NOT NULL AND l.expires <= v_now;
    DELETE FROM holds AS h WHERE h.name = p_name AND h.expires <= v_now;
    SELECT count(*), min(e.lim) INTO v_holds, v_least FROM entries AS e WHERE e.name = p_name AND e.hold;
    FOR v_first IN SELECT p.* FROM places AS p WHERE p.name = p_name ORDER BY p.token LOOP
        EXIT WHEN v_first.expires > v_now AND v_holds > 0 AND v_holds >= least(v_least, v_first.lim);
        DELETE FROM places AS p WHERE p.name = p_name AND p.owner = v_first.owner;
        CONTINUE WHEN v_first.expires <= v_now;
        IF v_holds = 0 THEN
            UPDATE locks AS l
               SET owner = v_first.owner, token = v_first.token, tokens = v_first.tokens, lim = v_first.lim, kept = false, since = v_first.since,
                   expires = v_first.expires, holder = v_first.holder, metadata = v_first.metadata, channel = v_first.channel
             WHERE l.name = p_name;
        ELSE
            INSERT INTO holds SELECT v_first.*;
        END IF;
        v_holds := v_holds + 1;
        v_least := least(v_least, v_first.lim);
        IF v_first.owner <> p_asker AND v_first.channel IS NOT NULL THEN
            v_told := v_told || notice(v_first.channel, p_name, v_first.owner, v_first.token);
        END IF;
    END LOOP;
    UPDATE locks AS l SET others = NOT l.others
     WHERE l.name = p_name AND l.others <> (EXISTS (SELECT FROM holds AS h WHERE h.name = p_name) OR EXISTS (SELECT FROM places AS p WHERE p.name = p_name));
    RETURN v_told;
END $$
--
-- Makes an entry at the end of the queue of each name, a hold or a place. The outcomes:
--   held, waiting  there is an entry, with the token
--   refused        none was made; held describes a hold that is in the way
--   again          none was made; the owner has one, which stays as it is
--   floor          none was made; the floor is more than a day ahead of the clock
-- One statement grants the names that are free. A single name that it does not grant goes on to the
-- loop. With several the rest stays without an answer, and the caller calls again, with p_rest:
-- the statement may have locked rows in another order.
CREATE OR REPLACE FUNCTION acquire(p_names text[], p_owners text[], p_holders text[], p_ttls bigint[], p_places bigint[], p_limits integer[],
    p_tokens integer[], p_floors bigint[], p_metadata text[], p_channel text, p_rest boolean)
RETURNS TABLE (item integer, outcome text, token bigint, held jsonb, told text[])
@verb@ AS $$
DECLARE
    r         record;
    v_now     timestamptz;
    v_micros  bigint;
    v_last    bigint;
    v_holds   bigint;
    v_least   integer;
    v_durable boolean := false;
BEGIN
    IF NOT p_rest THEN
        v_now := clock_timestamp();
        v_micros := micros(v_now);
        RETURN QUERY
        INSERT INTO locks AS l (name, owner, token, tokens, lim, kept, since, expires, holder, metadata, channel, last_token)
        SELECT a.name, p_owners[a.item], greatest(v_micros, p_floors[a.item]), p_tokens[a.item], p_limits[a.item], false, v_now, v_now + span(p_ttls[a.item]),
               p_holders[a.item], p_metadata[a.item]::jsonb, p_channel, greatest(v_micros, p_floors[a.item]) + p_tokens[a.item] - 1
          FROM unnest(p_names) WITH ORDINALITY AS a(name, item)
         WHERE a.name IS DISTINCT FROM p_names[a.item - 1] AND p_floors[a.item] <= v_micros + 86400000000
           AND NOT EXISTS (SELECT FROM locks AS o WHERE o.name = a.name AND (o.others OR o.owner IS NOT NULL AND o.expires > clock_timestamp()))
            ON CONFLICT (name) DO UPDATE
           SET name = excluded.name, -- so that it waits for those that have verified the lock
               owner = excluded.owner, tokens = excluded.tokens, lim = excluded.lim, kept = false, since = excluded.since,
               expires = clock_timestamp() + (excluded.expires - v_now), holder = excluded.holder, metadata = excluded.metadata, channel = excluded.channel,
               token = greatest(l.last_token + 1, excluded.token), last_token = greatest(l.last_token + 1, excluded.token) + excluded.tokens - 1
         WHERE NOT l.others AND (l.owner IS NULL OR l.expires <= clock_timestamp())
        RETURNING array_position(p_names, l.name), 'held', l.token, NULL::jsonb, NULL::text[];
        IF FOUND OR cardinality(p_names) > 1 THEN
            RETURN;
        END IF;
    END IF;
    FOR r IN SELECT * FROM unnest(p_names, p_owners, p_holders, p_ttls, p_places, p_limits, p_tokens, p_floors, p_metadata) WITH ORDINALITY
                               AS a(name, owner, holder, ttl, place, lim, tokens, floor, metadata, item)
    LOOP
        item := r.item;
        token := 0;
        told := '{}';
        IF r.floor > micros(clock_timestamp()) + 86400000000 THEN
            outcome := 'floor';
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A refusal that is plain to see locks nothing and writes nothing.
        IF r.place = 0 THEN
            SELECT described(e) INTO held FROM entries AS e JOIN locks AS l ON l.name = e.name AND NOT l.others
             WHERE e.name = r.name AND e.hold AND e.owner <> r.owner AND e.expires > clock_timestamp() AND least(e.lim, r.lim) = 1;
            IF FOUND THEN
                outcome := 'refused';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        SELECT l.last_token INTO v_last FROM locks AS l WHERE l.name = r.name FOR UPDATE;
        CONTINUE WHEN NOT FOUND; -- It was swept in between.
        told := settle(r.name, '');
        v_now := clock_timestamp();
        token := greatest(v_last + 1, micros(v_now), r.floor);
        SELECT count(*), min(e.lim) INTO v_holds, v_least FROM entries AS e WHERE e.name = r.name AND e.hold;
        outcome := CASE
            WHEN EXISTS (SELECT FROM entries AS e WHERE e.name = r.name AND e.owner = r.owner) THEN 'again'
            WHEN (v_holds = 0 OR v_holds < least(v_least, r.lim)) AND NOT EXISTS (SELECT FROM places AS p WHERE p.name = r.name) THEN 'held'
            WHEN r.place > 0 THEN 'waiting'
            ELSE 'refused' END;
        held := NULL;
        IF outcome <> 'held' THEN
            SELECT described(e) INTO held FROM entries AS e WHERE e.name = r.name AND e.hold ORDER BY e.token LIMIT 1;
        END IF;
        IF outcome = 'waiting' THEN
            INSERT INTO places
            VALUES (r.name, r.owner, token, r.tokens, r.lim, false, v_now, v_now + span(r.place), r.holder, r.metadata::jsonb, p_channel);
            UPDATE locks AS l SET last_token = acquire.token + r.tokens - 1, others = true WHERE l.name = r.name;
        ELSIF outcome = 'held' AND v_holds = 0 THEN
            UPDATE locks AS l
               SET owner = r.owner, token = acquire.token, tokens = r.tokens, lim = r.lim, kept = false, since = v_now, expires = v_now + span(r.ttl),
                   holder = r.holder, metadata = r.metadata::jsonb, channel = p_channel, last_token = acquire.token + r.tokens - 1
             WHERE l.name = r.name;
        ELSIF outcome = 'held' THEN
            INSERT INTO holds
            VALUES (r.name, r.owner, token, r.tokens, r.lim, false, v_now, v_now + span(r.ttl), r.holder, r.metadata::jsonb, p_channel);
            UPDATE locks AS l SET last_token = acquire.token + r.tokens - 1, others = true WHERE l.name = r.name;
        END IF;
        v_durable := v_durable OR outcome = 'held' OR told <> '{}';
        RETURN NEXT;
    END LOOP;
    IF NOT v_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$
--
-- Prolongs entries, and reports what each is now: held, waiting or lost. An entry whose row another
-- transaction has locked has no answer. With p_patient the function waits for such rows, until one
-- has not come free in time.
CREATE OR REPLACE FUNCTION renew(p_names text[], p_owners text[], p_tokens bigint[], p_ttls bigint[], p_patient boolean)
RETURNS TABLE (item integer, outcome text, token bigint, told text[])
@verb@ AS $$
DECLARE
    r         record;
    v_end     timestamptz;
    v_others  boolean;
    v_durable boolean := false;
BEGIN
    FOR r IN SELECT * FROM unnest(p_names, p_owners, p_tokens, p_ttls) WITH ORDINALITY AS a(name, owner, token, ttl, item)
    LOOP
        item := r.item;
        outcome := 'lost';
        token := 0;
        told := '{}';
        IF p_patient THEN
            IF cardinality(p_names) = 1 THEN
                PERFORM FROM locks AS l WHERE l.name = r.name FOR NO KEY UPDATE;
            ELSE
                BEGIN
                    PERFORM FROM locks AS l WHERE l.name = r.name FOR NO KEY UPDATE;
                EXCEPTION WHEN lock_not_available THEN
                    p_patient := false; -- one wait is enough for all
                    CONTINUE;
                END;
            END IF;
        END IF;
        SELECT l.others INTO v_others FROM locks AS l WHERE l.name = r.name FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            CONTINUE WHEN EXISTS (SELECT FROM locks AS l WHERE l.name = r.name);
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A transaction that has verified the lock delays admissions, and not this renewal.
        IF v_others AND EXISTS (SELECT FROM places AS p WHERE p.name = r.name) AND EXISTS (SELECT FROM locks AS l WHERE l.name = r.name FOR UPDATE SKIP LOCKED) THEN
            told := settle(r.name, r.owner);
        END IF;
        v_end := clock_timestamp() + span(r.ttl);
        UPDATE locks AS l SET expires = greatest(l.expires, v_end)
         WHERE l.name = r.name AND l.owner = r.owner AND NOT l.kept AND l.expires > clock_timestamp() AND r.token IN (0, l.token)
        RETURNING l.token, 'held' INTO token, outcome;
        IF NOT FOUND AND v_others THEN
            UPDATE holds AS h SET expires = greatest(h.expires, v_end)
             WHERE h.name = r.name AND h.owner = r.owner AND NOT h.kept AND h.expires > clock_timestamp() AND r.token IN (0, h.token)
            RETURNING h.token, 'held' INTO token, outcome;
        END IF;
        IF NOT FOUND AND v_others THEN
            UPDATE places AS p SET expires = greatest(p.expires, v_end)
             WHERE p.name = r.name AND p.owner = r.owner AND p.expires > clock_timestamp() AND r.token IN (0, p.token)
            RETURNING p.token, 'waiting' INTO token, outcome;
        END IF;
        IF NOT FOUND THEN
            token := 0;
            outcome := 'lost';
        END IF;
        v_durable := v_durable OR outcome = 'held' OR told <> '{}';
        RETURN NEXT;
    END LOOP;
    IF NOT v_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$
--
-- Ends entries, or keeps the names of holds. The outcome is ended if that was done, and none if
-- there was no such entry. One statement ends the holds without others, in a transaction that does
-- not wait for the disk. For the rest the caller calls again, as in acquire.
CREATE OR REPLACE FUNCTION release(p_names text[], p_owners text[], p_keeps bigint[], p_rest boolean)
RETURNS TABLE (item integer, outcome text, told text[])
@verb@ AS $$
DECLARE
    r         record;
    v_now     timestamptz := clock_timestamp();
    v_ended   boolean;
    v_level   text;
    v_durable boolean := false;
BEGIN
    IF NOT p_rest THEN
        RETURN QUERY
        UPDATE locks AS l SET owner = NULL, expires = v_now
          FROM unnest(p_names) WITH ORDINALITY AS a(name, item)
         WHERE l.name = a.name AND l.owner = p_owners[a.item] AND p_keeps[a.item] = 0 AND NOT l.kept AND NOT l.others AND l.expires > v_now
        RETURNING a.item::integer, 'ended', NULL::text[];
        IF FOUND OR cardinality(p_names) > 1 THEN
            v_level := set_config('synchronous_commit', 'off', true); -- as PERFORM, at a fraction of its cost
            RETURN;
        END IF;
    END IF;
    FOR r IN SELECT * FROM unnest(p_names, p_owners, p_keeps) WITH ORDINALITY AS a(name, owner, keep, item)
    LOOP
        item := r.item;
        outcome := 'none';
        told := '{}';
        PERFORM FROM locks AS l WHERE l.name = r.name FOR UPDATE;
        IF NOT FOUND THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        told := settle(r.name, r.owner);
        v_now := clock_timestamp();
        UPDATE locks AS l SET kept = r.keep > 0, expires = v_now + span(r.keep) WHERE l.name = r.name AND l.owner = r.owner AND (r.keep > 0 OR NOT l.kept);
        v_ended := FOUND;
        UPDATE holds AS h SET kept = r.keep > 0, expires = v_now + span(r.keep) WHERE h.name = r.name AND h.owner = r.owner AND (r.keep > 0 OR NOT h.kept);
        v_ended := v_ended OR FOUND;
        DELETE FROM places AS p WHERE p.name = r.name AND p.owner = r.owner AND p.expires > v_now;
        outcome := CASE WHEN v_ended OR FOUND AND r.keep = 0 THEN 'ended' ELSE 'none' END;
        told := told || settle(r.name, '');
        v_durable := v_durable OR told <> '{}' OR r.keep > 0;
        RETURN NEXT;
    END LOOP;
    IF NOT v_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$
--
-- Ends the hold or keep that has the token in its block, or all holds and keeps of the name for 0.
CREATE OR REPLACE FUNCTION break_holds(p_name text, p_token bigint, OUT held jsonb[], OUT told text[])
@verb@ AS $$
DECLARE
    v_looks text[] := '{}';
    v_hold  entries;
BEGIN
    held := '{}';
    told := '{}';
    PERFORM FROM locks AS l WHERE l.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    told := settle(p_name, '');
    FOR v_hold IN SELECT * FROM entries AS e
                   WHERE e.name = p_name AND e.hold AND (p_token = 0 OR e.token <= p_token AND p_token < e.token + e.tokens) ORDER BY e.token
    LOOP
        held := held || described(v_hold);
        IF NOT v_hold.kept AND v_hold.channel IS NOT NULL THEN
            v_looks := v_looks || notice(v_hold.channel, p_name, v_hold.owner, 0);
        END IF;
        UPDATE locks AS l SET owner = NULL, expires = clock_timestamp() WHERE l.name = p_name AND l.owner = v_hold.owner;
        DELETE FROM holds AS h WHERE h.name = p_name AND h.owner = v_hold.owner;
    END LOOP;
    told := told || settle(p_name, '') || v_looks;
END $$
--
-- Describes the holds and keeps of a name, oldest first. If others wait for a hold that has ended,
-- they are admitted; nothing else is changed.
CREATE OR REPLACE FUNCTION look(p_name text, OUT held jsonb[], OUT told text[])
@verb@ AS $$
DECLARE
    v_others boolean;
BEGIN
    told := '{}';
    SELECT l.others INTO v_others FROM locks AS l WHERE l.name = p_name;
    IF v_others AND EXISTS (SELECT FROM places AS p WHERE p.name = p_name)
       AND (EXISTS (SELECT FROM entries AS e WHERE e.name = p_name AND e.hold AND e.expires <= clock_timestamp())
            OR NOT EXISTS (SELECT FROM entries AS e WHERE e.name = p_name AND e.hold)) THEN
        PERFORM FROM locks AS l WHERE l.name = p_name FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            told := settle(p_name, '');
        END IF;
    END IF;
    held := ARRAY(SELECT described(e) || jsonb_build_object('waiting', (SELECT count(*) FROM places AS p WHERE p.name = p_name AND p.expires > clock_timestamp()))
                    FROM entries AS e WHERE e.name = p_name AND e.hold AND e.expires > clock_timestamp() ORDER BY e.token);
END $$
--
-- Does what look does for at most p_names names with the prefix, in order, behind the name p_after.
CREATE OR REPLACE FUNCTION list(p_prefix text, p_after text, p_names bigint)
RETURNS TABLE (name text, held jsonb[], told text[])
@verb@ AS $$
BEGIN
    RETURN QUERY
    SELECT n.name, k.held, k.told
      FROM (SELECT l.name FROM locks AS l
             WHERE l.name > p_after AND l.name >= p_prefix COLLATE "C" AND starts_with(l.name, p_prefix)
               AND (l.others OR l.owner IS NOT NULL AND l.expires > clock_timestamp())
             ORDER BY l.name LIMIT p_names) AS n, look(n.name) AS k;
END $$
--
-- Notifies those that other functions have returned (see notice). Transactions that notify wait for
-- each other's commit, and so for the disk: a Store does it in a transaction of its own, after that
-- of the change. The functions for other languages do it in that of the caller.
CREATE OR REPLACE FUNCTION tell(p_told text[]) RETURNS void
@verb@ AS $$
BEGIN
    PERFORM pg_notify(split_part(n.one, ' ', 1), substr(n.one, strpos(n.one, ' ') + 1)) FROM unnest(p_told) AS n(one);
    PERFORM set_config('synchronous_commit', 'off', true);
END $$
--
-- Deletes the rows of names that have been free for an hour, 10,000 at most, and returns how many.
-- A row whose token the clock has not passed stays. The rows of names in use are locked last. The
-- function reads the whole table, which costs so much by the estimate, with enable_seqscan off, that
-- the server would compile the statement first, for 0.5 s.
CREATE OR REPLACE FUNCTION sweep_locks() RETURNS bigint
@verb@ SET jit = off SET synchronous_commit = on AS $$
DECLARE
    v_idle  CONSTANT timestamptz := clock_timestamp() - interval '1 hour';
    v_count bigint;
BEGIN
    DELETE FROM locks AS l WHERE l.name IN (
        SELECT o.name FROM locks AS o WHERE NOT o.others AND o.expires <= v_idle AND o.last_token < micros(v_idle) LIMIT 10000 FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM places AS p WHERE p.expires <= v_idle AND p.name IN ( -- also those behind one that lives on
        SELECT l.name FROM locks AS l WHERE l.name IN (SELECT d.name FROM places AS d WHERE d.expires <= v_idle) LIMIT 1000 FOR UPDATE SKIP LOCKED);
    PERFORM tell(settle(o.name, '')) FROM (SELECT l.name FROM locks AS l WHERE l.others AND l.expires <= v_idle LIMIT 1000 FOR UPDATE SKIP LOCKED) AS o;
    RETURN v_count;
END $$
--
-- Fails unless a hold of the name has the token, and lets nobody else have the name until the
-- transaction of the caller has ended: what it commits, it commits as the holder.
CREATE OR REPLACE FUNCTION verify(p_lock_name text, p_token bigint) RETURNS void
@verb@ AS $$
BEGIN
    PERFORM FROM locks AS l WHERE l.name = p_lock_name FOR KEY SHARE; -- A renewal does not wait for that.
    -- If the snapshot is that of the transaction, a hold that has ended since is the error 40001.
    PERFORM FROM holds AS h WHERE h.name = p_lock_name AND h.token <= p_token AND p_token < h.token + h.tokens FOR KEY SHARE;
    IF NOT EXISTS (SELECT FROM entries AS e WHERE e.name = p_lock_name AND e.hold AND NOT e.kept AND e.expires > clock_timestamp()
                      AND e.token <= p_token AND p_token < e.token + e.tokens) THEN
        RAISE EXCEPTION 'the lock % is not held under the token %', p_lock_name, p_token USING ERRCODE = 'HF001';
    END IF;
END $$
--
-- For every language. Takes a lock that is free, or extends one's own, and returns the fencing
-- token, or null if others hold the lock or wait for it, or the holder has it with another limit.
-- With a limit of -1 the lock is held as by a reader, with one above 1 as by one of so many.
--
-- The verbs and tell set synchronous_commit off where a commit need not wait for the disk. In a
-- function with SET synchronous_commit that ends with the function: the caller's transaction
-- commits as durably as the caller wants.
CREATE OR REPLACE FUNCTION acquire_slot(p_lock_name text, p_holder_id text, p_ttl_seconds double precision, p_metadata jsonb, p_limit integer)
RETURNS bigint
@verb@ SET synchronous_commit = on AS $$
DECLARE
    v_lim  CONSTANT integer := CASE WHEN p_limit = -1 THEN 2147483647 ELSE greatest(p_limit, 1) END;
    v_ttl  CONSTANT bigint := CASE WHEN p_ttl_seconds BETWEEN 0.01 AND 31536000 THEN (p_ttl_seconds * 1000000)::bigint END;
    v_done record;
BEGIN
    IF p_limit IS NULL OR p_limit < -1 OR coalesce(p_lock_name, '') = '' OR coalesce(p_holder_id, '') = '' OR v_ttl IS NULL THEN
        RAISE EXCEPTION 'a lock needs a name, a holder id, a TTL of 0.01 to 31536000 seconds and a limit of -1 or more' USING ERRCODE = '22023';
    ELSIF octet_length(p_lock_name) > 255 OR octet_length(p_holder_id) > 255 OR pg_column_size(p_metadata) > 8192 THEN
        RAISE EXCEPTION 'the name and the holder id of a lock have 255 bytes at most, and its metadata 8 kB' USING ERRCODE = '22001';
    END IF;
    IF EXISTS (SELECT FROM entries AS e WHERE e.name = p_lock_name AND e.owner = p_holder_id AND e.expires > clock_timestamp() AND e.lim = v_lim) THEN
        SELECT * INTO v_done FROM renew(ARRAY[p_lock_name], ARRAY[p_holder_id], '{0}', ARRAY[v_ttl], true);
    ELSE
        SELECT * INTO v_done FROM acquire(ARRAY[p_lock_name], ARRAY[p_holder_id], ARRAY[p_holder_id], ARRAY[v_ttl], '{0}', ARRAY[v_lim], '{1}', '{0}',
                                          ARRAY[p_metadata::text], NULL, false);
    END IF;
    PERFORM tell(v_done.told) WHERE v_done.told <> '{}';
    RETURN CASE WHEN v_done.outcome = 'held' THEN v_done.token END;
END $$
--
CREATE OR REPLACE FUNCTION acquire_lock_token(p_lock_name text, p_holder_id text, p_ttl_seconds double precision DEFAULT 30, p_metadata jsonb DEFAULT '{}')
RETURNS bigint
@verb@ AS $$ BEGIN RETURN acquire_slot(p_lock_name, p_holder_id, p_ttl_seconds, p_metadata, 1); END $$
--
CREATE OR REPLACE FUNCTION acquire_lock(p_lock_name text, p_holder_id text, p_ttl_seconds double precision DEFAULT 30, p_metadata jsonb DEFAULT '{}')
RETURNS boolean
@verb@ AS $$ BEGIN RETURN acquire_slot(p_lock_name, p_holder_id, p_ttl_seconds, p_metadata, 1) IS NOT NULL; END $$
--
-- Extends one's own lock. False: it is lost, and is not taken anew.
CREATE OR REPLACE FUNCTION extend_lock(p_lock_name text, p_holder_id text, p_ttl_seconds double precision DEFAULT 30) RETURNS boolean
@verb@ SET synchronous_commit = on AS $$
DECLARE
    v_done record;
BEGIN
    IF p_ttl_seconds IS NULL OR p_ttl_seconds NOT BETWEEN 0.01 AND 31536000 THEN
        RAISE EXCEPTION 'the TTL of a lock is 0.01 to 31536000 seconds' USING ERRCODE = '22023';
    END IF;
    SELECT * INTO v_done FROM renew(ARRAY[p_lock_name], ARRAY[p_holder_id], '{0}', ARRAY[(p_ttl_seconds * 1000000)::bigint], true);
    PERFORM tell(v_done.told) WHERE v_done.told <> '{}';
    RETURN v_done.outcome = 'held';
END $$
--
-- Releases one's own lock. The first of those that wait for it gets it, and is notified at the
-- commit. False: one did not hold it.
CREATE OR REPLACE FUNCTION release_lock(p_lock_name text, p_holder_id text) RETURNS boolean
@verb@ SET synchronous_commit = on AS $$
DECLARE
    v_done record;
BEGIN
    SELECT * INTO v_done FROM release(ARRAY[p_lock_name], ARRAY[p_holder_id], '{0}', false);
    PERFORM tell(v_done.told) WHERE v_done.told <> '{}';
    RETURN v_done.outcome = 'ended';
END $$
