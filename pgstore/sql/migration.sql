-- The locks. Half-empty pages and no index on a time keep every update within its page (HOT); vacuum
-- comes after a number of updates, not after a share of the rows.
CREATE TABLE IF NOT EXISTS @table@ (
    lock_name   varchar(255) COLLATE "C" PRIMARY KEY,
    holder_id   varchar(255) NOT NULL, -- who may extend and release it: what acquire_lock was given, or a secret; empty: released, or held by several
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    metadata    jsonb,
    token       bigint NOT NULL DEFAULT 0, -- of the last grant; it rises with every grant of the name
    holder      varchar(255), -- whom package holdfast shows as the holder; null: holder_id is shown
    granted_at  timestamptz,  -- equal to acquired_at if token and holder belong to the present hold: a program that writes the table itself does not set them
    kept_by     varchar(255), -- whose release the name is kept after; empty: several hold the lock, as the table of shares shows
    last_token  bigint,       -- of a grant that had several; it means nothing if it is below token
    has_waiters boolean NOT NULL DEFAULT false, -- there may be rows of the name in the tables of waiters and shares: a change has to look there
    notify_to   varchar(255)  -- the channel and the payload by which a holder that has waited is notified of its grant, until it has claimed it
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.5)
--
CREATE TABLE IF NOT EXISTS @shares@ (
    lock_name   varchar(255) COLLATE "C" NOT NULL,
    owner       varchar(255) NOT NULL,
    lim         bigint NOT NULL,
    token       bigint NOT NULL,
    last_token  bigint NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    is_kept     boolean NOT NULL DEFAULT false,
    holder      varchar(255),
    metadata    jsonb,
    notify_to   varchar(255),
    PRIMARY KEY (lock_name, owner)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
--
-- The queue of each name is unlogged: a place costs no write to the log, and after a crash of the
-- server waiters ask anew.
CREATE UNLOGGED TABLE IF NOT EXISTS @waiters@ (
    lock_name varchar(255) COLLATE "C" NOT NULL,
    owner     varchar(255) NOT NULL,
    place     bigint NOT NULL, -- the order in the queue of the name
    until     timestamptz NOT NULL,
    holder    varchar(255),
    metadata  jsonb,
    floor     bigint NOT NULL,
    tokens    bigint NOT NULL,
    notify_to varchar(255),
    lim       bigint NOT NULL,
    PRIMARY KEY (lock_name, owner)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
--
@check_table@
--
-- The first and the last end of a name. Its key is an expression, so that no plan that was made for a
-- table of few rows finds the share of an owner by it, which would read all shares of the name.
CREATE INDEX IF NOT EXISTS @shares_index@ ON @shares@ ((lock_name::text || ''::text), expires_at)
--
CREATE INDEX IF NOT EXISTS @shares_notify_index@ ON @shares@ (lock_name) WHERE notify_to IS NOT NULL
--
CREATE INDEX IF NOT EXISTS @waiters_index@ ON @waiters@ (lock_name, place)
--
COMMENT ON TABLE @table@ IS
    'Locks. A lock is held while expires_at is in the future; a row whose time is over is free, and is kept for its token.'
--
COMMENT ON TABLE @shares@ IS
    'The holds of locks that several hold at once: shared ones, with lim -1, and limited ones, of which there are at most lim. They count while the row of the lock has no holder_id and an empty kept_by.'
--
COMMENT ON TABLE @waiters@ IS
    'Those that wait for locks, until a time unless they renew it. The lock passes to the lowest place of its name.'
--
-- The functions. Each has a search_path of its own, so that an operator or a
-- function which somebody else has made in a schema of the caller's is never
-- used; and each is called with exactly the types of its parameters, so that no
-- overload is a better match.

-- The tokens of a grant after the last ones of the name: one, or p_count if the last of them is near
-- enough to the clock, or to the floor. An internal part of the functions below.
CREATE OR REPLACE FUNCTION @holdfast_tokens@(p_token bigint, p_last bigint, p_floor bigint, p_count bigint, p_now timestamptz,
    OUT token bigint, OUT last_token bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_clock CONSTANT bigint := (extract(epoch FROM p_now) * 1000000)::bigint;
BEGIN
    token := greatest(p_token + 1, p_last + 1, v_clock, p_floor);
    last_token := p_last;
    IF p_count > 1 AND token + p_count - 1 <= least(greatest(v_clock, p_floor) + @tokens_lead@, 9007199254740991) THEN
        last_token := token + p_count - 1;
    END IF;
END $holdfast$
--
-- Reports whether a lock that several hold admits a share of p_owner: nobody is in line, the owner
-- has none, and the limit leaves room for it. The transaction has locked the row of the lock.
CREATE OR REPLACE FUNCTION @holdfast_admits@(p_name text, p_owner text, p_limit bigint, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN NOT EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = p_name)
       AND NOT EXISTS (SELECT FROM @shares@ AS s WHERE s.lock_name = p_name AND s.owner = p_owner)
       AND (p_limit < 0 OR p_limit > (SELECT count(*) FROM @shares@ AS s WHERE s.lock_name = p_name AND s.lim > 0 AND s.expires_at > p_now));
END $holdfast$
--
-- Settles the queue of a name whose row the transaction has locked: drops what is over and what
-- p_leaver has there, and gives the lock to the first places that may hold it. Every function locks
-- the row first, then shares, and then places. A place that can be granted no token is dropped.
-- Without the rights to the table of waiters there is no queue: holds do not depend on it.
--   left_queue  p_leaver had a place
--   free        nobody holds the lock, and nobody is in line
--   shared      several may hold the lock, and nobody is in line
--   admitted    the owners that have got the lock, or null
--   waiters     there are rows of the name left
CREATE OR REPLACE FUNCTION @holdfast_settle@(p_name text, p_leaver text,
    OUT left_queue boolean, OUT free boolean, OUT shared boolean, OUT admitted text[], OUT waiters boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_now     CONSTANT timestamptz := clock_timestamp();
    v_lock    record;
    v_first   record;
    v_tokens  record;
    v_place   bigint := 0;
    v_slots   bigint;           -- that the shares with a limit take, once it is needed
    is_joined boolean := false; -- shares were admitted
BEGIN
    left_queue := false;
    waiters := true;
    SELECT t.token, t.last_token, t.acquired_at, t.expires_at, t.expires_at > v_now AS held, t.holder_id = '' AND coalesce(t.kept_by = '', false) AS shared
      INTO v_lock FROM @table@ AS t WHERE t.lock_name = p_name;
    IF NOT v_lock.held OR NOT v_lock.shared THEN
        DELETE FROM @shares@ AS s WHERE s.lock_name = p_name;
    ELSIF (SELECT s.expires_at FROM @shares@ AS s WHERE s.lock_name || '' = p_name ORDER BY s.expires_at LIMIT 1) <= v_now THEN
        DELETE FROM @shares@ AS s WHERE s.lock_name || '' = p_name AND s.expires_at <= v_now;
    END IF;
    IF p_leaver <> '' THEN
        DELETE FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.owner = p_leaver
        RETURNING w.until > v_now INTO left_queue;
        left_queue := coalesce(left_queue, false);
    END IF;
    DELETE FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.until <= v_now;
    LOOP
        free := NOT v_lock.held;
        shared := v_lock.held AND v_lock.shared;
        EXIT WHEN v_lock.held AND NOT v_lock.shared;
        SELECT w.owner, w.place, w.holder, w.metadata, w.floor, w.tokens, w.until, w.notify_to, w.lim
          INTO v_first
          FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.place > v_place ORDER BY w.place LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_place := v_first.place;
        IF v_first.lim > 0 AND v_slots IS NULL THEN
            SELECT count(*) INTO v_slots FROM @shares@ AS s WHERE s.lock_name = p_name AND s.lim > 0;
        END IF;
        -- A thousand are admitted at once, and the next by the next request.
        IF cardinality(admitted) = 1000
           OR v_lock.held AND (v_first.lim = 0 OR v_first.lim > 0 AND v_first.lim <= v_slots) THEN
            shared := false;
            EXIT;
        END IF;
        DELETE FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.owner = v_first.owner;
        CONTINUE WHEN greatest(v_lock.token, v_lock.last_token) >= 9007199254740991;
        SELECT k.token, k.last_token INTO v_tokens
          FROM @holdfast_tokens@(v_lock.token, v_lock.last_token, v_first.floor, v_first.tokens, v_now) AS k;
        free := false;
        admitted := admitted || v_first.owner::text;
        IF v_first.lim <> 0 THEN
            INSERT INTO @shares@ AS s (lock_name, owner, lim, token, last_token, acquired_at, expires_at, holder, metadata, notify_to)
            VALUES (p_name, v_first.owner, v_first.lim, v_tokens.token, coalesce(v_tokens.last_token, v_tokens.token), v_now,
                    v_first.until, v_first.holder, v_first.metadata, v_first.notify_to);
            IF NOT v_lock.held THEN
                v_lock.acquired_at := v_now;
            END IF;
            v_lock.expires_at := CASE WHEN v_lock.held THEN greatest(v_lock.expires_at, v_first.until) ELSE v_first.until END;
            v_lock.held := true;
            v_lock.shared := true;
            v_lock.token := v_tokens.token;
            v_lock.last_token := v_tokens.last_token;
            v_slots := v_slots + CASE WHEN v_first.lim > 0 THEN 1 ELSE 0 END;
            is_joined := true;
            CONTINUE;
        END IF;
        UPDATE @table@ AS t
           SET holder_id = v_first.owner, holder = v_first.holder, metadata = v_first.metadata, kept_by = NULL,
               acquired_at = v_now, granted_at = v_now, expires_at = v_first.until, token = v_tokens.token, last_token = v_tokens.last_token,
               notify_to = v_first.notify_to
         WHERE t.lock_name = p_name;
        EXIT;
    END LOOP;
    IF is_joined THEN
        UPDATE @table@ AS t
           SET holder_id = '', holder = NULL, metadata = '{}', kept_by = '', acquired_at = v_lock.acquired_at, granted_at = v_lock.acquired_at,
               expires_at = v_lock.expires_at, token = v_lock.token, last_token = v_lock.last_token, notify_to = NULL
         WHERE t.lock_name = p_name;
    END IF;
    waiters := EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = p_name) OR EXISTS (SELECT FROM @shares@ AS s WHERE s.lock_name = p_name);
    UPDATE @table@ AS t SET has_waiters = waiters WHERE t.lock_name = p_name AND t.has_waiters <> waiters;
EXCEPTION WHEN insufficient_privilege OR undefined_table THEN
    SELECT t.expires_at <= clock_timestamp() INTO free FROM @table@ AS t WHERE t.lock_name = p_name;
END $holdfast$
--
-- Notifies those whose turn it may be, in these names: a holder that has waited, and the first place
-- if nobody holds the lock. It comes in a transaction of its own, since a commit that notifies holds
-- up all others that do. A user without the right to read the places notifies nobody.
CREATE OR REPLACE FUNCTION @holdfast_notify@(p_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    IF NOT has_table_privilege(@waiters_literal@, 'SELECT') THEN
        RETURN;
    END IF;
    PERFORM pg_notify(split_part(n.notify_to, ' ', 1), split_part(n.notify_to, ' ', 2))
       FROM @table@ AS t, LATERAL (
            SELECT t.notify_to WHERE t.holder_id <> '' AND t.expires_at > clock_timestamp()
            UNION ALL
            SELECT s.notify_to FROM @shares@ AS s
             WHERE s.lock_name = t.lock_name AND s.notify_to IS NOT NULL AND t.holder_id = '' AND t.kept_by = '' AND s.expires_at > clock_timestamp()
            UNION ALL
            SELECT w.notify_to FROM @waiters@ AS w
             WHERE w.lock_name = t.lock_name AND w.until > clock_timestamp()
               AND (t.holder_id = '' AND t.kept_by IS DISTINCT FROM '' OR t.expires_at <= clock_timestamp())
               AND w.place = (SELECT min(f.place) FROM @waiters@ AS f WHERE f.lock_name = t.lock_name AND f.until > clock_timestamp())
            ) AS n
      WHERE t.lock_name = ANY (p_names) AND n.notify_to IS NOT NULL;
END $holdfast$
--
-- Counts the places of a name, where they can be read: a standby has none.
CREATE OR REPLACE FUNCTION @holdfast_waiting@(p_name text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    IF pg_is_in_recovery() OR NOT has_table_privilege(@waiters_literal@, 'SELECT') THEN
        RETURN 0;
    END IF;
    RETURN (SELECT count(*) FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.until > clock_timestamp());
END $holdfast$
--
-- One attempt to take a lock; with p_queue above zero one that waits for so long if it has to, in the
-- queue; with p_claim one that takes nothing and recognizes what
-- p_owner has. One that is refused without p_queue writes nothing. Times are in microseconds. The
-- clock is read after the row has been waited for, and while the statement runs: the beginning of a
-- transaction may be long ago. A row that another transaction has locked is waited for @row_wait@.
--   waiters  others wait for the lock, or may
--   notify   holdfast_notify is to be called
CREATE OR REPLACE FUNCTION @holdfast_acquire@(
    p_name text, p_owner text, p_holder text, p_ttl bigint, p_floor bigint, p_tokens bigint, p_metadata jsonb,
    p_queue bigint, p_claim boolean, p_notify_to text, p_limit bigint,
    OUT granted bigint, OUT tokens bigint, OUT is_new boolean, OUT queued boolean, OUT is_first boolean,
    OUT waiters boolean, OUT notify boolean, OUT held_token bigint, OUT held_by text, OUT held_since bigint,
    OUT held_until bigint, OUT held_left bigint, OUT held_kept boolean, OUT held_metadata text, OUT held_limit bigint,
    OUT held_waiting bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' SET enable_seqscan = off AS $holdfast$
DECLARE
    v_ttl     CONSTANT interval := p_ttl * interval '1 microsecond';
    v_queue   CONSTANT interval := p_queue * interval '1 microsecond';
    v_owner   text;
    v_kept_by text;
    v_last    bigint;
    v_place   bigint;
    v_settled record;
    v_now     timestamptz;
    is_taken  boolean;
    is_joined boolean; -- as one of several holders
    is_shared boolean; -- several may hold the lock
    is_over   boolean;
    in_turn   boolean := false; -- the row is locked, and nobody is in line
BEGIN
    tokens := 1;
    is_new := false;
    queued := false;
    is_first := false;
    waiters := false;
    notify := false;
    FOR attempt IN 1..100 LOOP
        is_taken := false;
        is_joined := false;
        IF NOT p_claim THEN
            -- Free: take it.
            UPDATE @table@ AS t
               SET holder_id = CASE p_limit WHEN 0 THEN p_owner ELSE '' END, holder = CASE p_limit WHEN 0 THEN p_holder END,
                   metadata = CASE p_limit WHEN 0 THEN coalesce(p_metadata, '{}') ELSE '{}' END,
                   kept_by = CASE p_limit WHEN 0 THEN NULL ELSE '' END, notify_to = NULL, has_waiters = t.has_waiters OR p_limit <> 0,
                   (acquired_at, granted_at, expires_at, token, last_token) =
                   (SELECT c.now, c.now, c.now + v_ttl, k.token, k.last_token
                      FROM (SELECT clock_timestamp() AS now) AS c, LATERAL @holdfast_tokens@(t.token, t.last_token, p_floor, p_tokens, c.now) AS k)
             WHERE t.lock_name = p_name AND t.expires_at <= clock_timestamp() AND (NOT t.has_waiters OR in_turn)
            RETURNING t.token, t.last_token, t.has_waiters, t.acquired_at INTO granted, v_last, waiters, v_now;
            is_taken := FOUND;
        END IF;
        IF NOT p_claim AND NOT is_taken AND p_limit <> 0 THEN
            -- Held by several: join them. The second statement sees what was committed before
            -- the row was locked.
            PERFORM FROM @table@ AS t
              WHERE t.lock_name = p_name AND t.holder_id = '' AND t.kept_by = '' AND t.expires_at > clock_timestamp() FOR NO KEY UPDATE;
            IF FOUND THEN
                v_now := clock_timestamp();
                UPDATE @table@ AS t
                   SET has_waiters = true, expires_at = greatest(t.expires_at, v_now + v_ttl),
                       (token, last_token) = (SELECT k.token, k.last_token FROM @holdfast_tokens@(t.token, t.last_token, p_floor, p_tokens, v_now) AS k)
                 WHERE t.lock_name = p_name AND t.expires_at > v_now AND @holdfast_admits@(p_name, p_owner, p_limit, v_now)
                RETURNING t.token, t.last_token INTO granted, v_last;
                is_taken := FOUND;
                is_joined := FOUND;
            END IF;
        END IF;
        IF NOT is_taken THEN
            SELECT t.holder_id, t.has_waiters, t.holder_id = '' AND coalesce(t.kept_by = '', false), @record@
              INTO v_owner, waiters, is_shared, held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata
              FROM @table@ AS t WHERE t.lock_name = p_name;
            IF NOT FOUND THEN
                waiters := false;
                IF p_claim THEN
                    granted := 0;
                    RETURN;
                END IF;
                -- Never taken, or forgotten since.
                INSERT INTO @table@ AS t (lock_name, holder_id, holder, metadata, acquired_at, granted_at, expires_at, token, last_token, kept_by, has_waiters)
                SELECT p_name, CASE p_limit WHEN 0 THEN p_owner ELSE '' END, CASE p_limit WHEN 0 THEN p_holder END,
                       CASE p_limit WHEN 0 THEN coalesce(p_metadata, '{}') ELSE '{}' END, c.now, c.now, c.now + v_ttl, k.token, k.last_token,
                       CASE p_limit WHEN 0 THEN NULL ELSE '' END, p_limit <> 0
                  FROM (SELECT clock_timestamp() AS now) AS c, LATERAL @holdfast_tokens@(-1::bigint, NULL::bigint, p_floor, p_tokens, c.now) AS k
                ON CONFLICT (lock_name) DO NOTHING
                RETURNING t.token, t.last_token, t.acquired_at INTO granted, v_last, v_now;
                CONTINUE WHEN NOT FOUND;
                is_taken := true;
                is_new := true;
            ELSIF v_owner = p_owner AND held_left > 0 THEN
                -- A repetition. A hold that was written by hand has no token yet.
                UPDATE @table@ AS t
                   SET expires_at = greatest(t.expires_at, clock_timestamp() + v_ttl), granted_at = t.acquired_at, notify_to = NULL,
                       token = CASE WHEN t.granted_at = t.acquired_at THEN t.token
                               ELSE greatest(t.token + 1, t.last_token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, p_floor) END
                 WHERE t.lock_name = p_name AND t.holder_id = p_owner AND t.expires_at > clock_timestamp()
                RETURNING t.token, t.last_token, t.has_waiters INTO granted, v_last, waiters;
                CONTINUE WHEN NOT FOUND;
                tokens := greatest(v_last - granted, 0) + 1;
                RETURN;
            ELSIF held_left > 0 AND p_queue = 0 AND NOT p_claim AND NOT is_shared THEN
                granted := 0;
                IF waiters AND has_table_privilege(@waiters_literal@, 'SELECT') THEN
                    SELECT w.place INTO v_place FROM @waiters@ AS w
                     WHERE w.lock_name = p_name AND w.owner = p_owner AND w.until > clock_timestamp();
                    queued := v_place IS NOT NULL;
                    held_waiting := @holdfast_waiting@(p_name);
                END IF;
                RETURN;
            END IF;
        END IF;
        IF is_taken THEN
            IF p_floor > extract(epoch FROM clock_timestamp()) * 1000000 + 86400000000 THEN
                RAISE EXCEPTION 'the floor of the token is too far above the clock' USING ERRCODE = 'HF005';
            ELSIF granted > 9007199254740992 THEN
                RAISE EXCEPTION 'the last token of the lock is above 2^53 - 1' USING ERRCODE = 'HF002';
            ELSIF granted > 9007199254740991 THEN
                RAISE EXCEPTION 'the tokens of the lock are used up' USING ERRCODE = 'HF001';
            END IF;
            IF p_limit <> 0 THEN
                IF NOT is_joined AND NOT in_turn THEN
                    DELETE FROM @shares@ AS s WHERE s.lock_name = p_name; -- of a row that was deleted since
                END IF;
                INSERT INTO @shares@ AS s (lock_name, owner, lim, token, last_token, acquired_at, expires_at, holder, metadata)
                VALUES (p_name, p_owner, p_limit, granted, coalesce(v_last, granted), v_now, v_now + v_ttl, p_holder, coalesce(p_metadata, '{}'));
                waiters := true;
            END IF;
            tokens := greatest(v_last - granted, 0) + 1;
            RETURN;
        END IF;
        -- Each statement after the row is locked sees what was committed before.
        PERFORM FROM @table@ AS t WHERE t.lock_name = p_name FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        IF p_queue > 0 THEN
            UPDATE @waiters@ AS w SET until = greatest(w.until, clock_timestamp() + v_queue)
             WHERE w.lock_name = p_name AND w.owner = p_owner AND w.until > clock_timestamp();
        END IF;
        SELECT t.expires_at <= clock_timestamp(), t.holder_id = '' AND coalesce(t.kept_by = '', false)
          INTO is_over, is_shared FROM @table@ AS t WHERE t.lock_name = p_name;
        IF is_over OR is_shared THEN
            SELECT s.free, s.shared, s.admitted INTO v_settled FROM @holdfast_settle@(p_name, NULL::text) AS s;
            in_turn := v_settled.free;
            notify := notify OR coalesce(v_settled.admitted <> ARRAY[p_owner], false);
            IF is_shared AND (p_claim OR EXISTS (
                    SELECT FROM @shares@ AS s
                     WHERE s.lock_name = p_name AND s.owner = p_owner AND p_limit <> 0 AND sign(s.lim) = sign(p_limit)))
                AND @holdfast_renew_share@(p_name, p_owner, clock_timestamp() + v_ttl, 0::bigint) THEN
                -- A repetition, or the claim of a place that was admitted. Programs in other languages may
                -- use an owner again, whose share is not the lock, and no share of another kind.
                SELECT s.token, greatest(s.last_token - s.token, 0) + 1 INTO granted, tokens
                  FROM @shares@ AS s WHERE s.lock_name = p_name AND s.owner = p_owner;
                waiters := true;
                RETURN;
            END IF;
            CONTINUE WHEN v_settled.admitted IS NOT NULL AND p_owner = ANY (v_settled.admitted);
            CONTINUE WHEN NOT p_claim AND (in_turn OR p_limit <> 0 AND v_settled.shared AND @holdfast_admits@(p_name, p_owner, p_limit, clock_timestamp()));
        END IF;
        SELECT t.holder_id, t.kept_by, t.has_waiters, t.holder_id = '' AND coalesce(t.kept_by = '', false), @record@
          INTO v_owner, v_kept_by, waiters, is_shared, held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata
          FROM @table@ AS t WHERE t.lock_name = p_name;
        CONTINUE WHEN v_owner = p_owner AND held_left > 0 OR held_left <= 0 AND NOT in_turn OR p_queue = 0 AND NOT p_claim AND NOT is_shared;
        granted := 0;
        IF is_shared AND held_left > 0 THEN
            SELECT f.token, f.holder, f.since, f.until, f.left_over, f.is_kept, f.metadata, f.lim
              INTO held_token, held_by, held_since, held_until, held_left, held_kept, held_metadata, held_limit
              FROM @holdfast_shares@(p_name, 1::bigint) AS f;
            v_kept_by := (SELECT s.owner FROM @shares@ AS s WHERE s.lock_name = p_name AND s.owner = p_owner AND s.is_kept);
            held_kept := coalesce(held_kept, false);
        END IF;
        SELECT w.place INTO v_place FROM @waiters@ AS w
         WHERE w.lock_name = p_name AND w.owner = p_owner AND w.until > clock_timestamp();
        queued := v_place IS NOT NULL;
        IF p_queue > 0 AND NOT p_claim AND NOT queued AND NOT ((held_kept OR is_shared) AND coalesce(v_kept_by = p_owner, false)) THEN
            queued := true;
            IF p_floor > extract(epoch FROM clock_timestamp()) * 1000000 + 86400000000 THEN
                RAISE EXCEPTION 'the floor of the token is too far above the clock' USING ERRCODE = 'HF005';
            END IF;
            SELECT coalesce(max(w.place), 0) + 1 INTO v_place FROM @waiters@ AS w WHERE w.lock_name = p_name;
            INSERT INTO @waiters@ AS w (lock_name, owner, place, until, holder, metadata, floor, tokens, notify_to, lim)
            VALUES (p_name, p_owner, v_place, clock_timestamp() + v_queue, p_holder, coalesce(p_metadata, '{}'), p_floor, p_tokens, p_notify_to, p_limit)
            -- A place that is over.
            ON CONFLICT (lock_name, owner) DO UPDATE SET place = v_place, until = excluded.until, holder = p_holder, metadata = coalesce(p_metadata, '{}'),
                floor = p_floor, tokens = p_tokens, notify_to = p_notify_to, lim = p_limit;
            -- It is written even if it is true: a transaction with an older snapshot has to notice.
            UPDATE @table@ AS t SET has_waiters = true WHERE t.lock_name = p_name;
            waiters := true;
        END IF;
        is_first := queued AND NOT EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = p_name AND w.place < v_place AND w.until > clock_timestamp());
        IF waiters THEN
            held_waiting := @holdfast_waiting@(p_name);
        END IF;
        IF NOT notify THEN
            PERFORM set_config('synchronous_commit', 'off', true); -- A crash forgets the queue.
        END IF;
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'the lock changes hands too fast' USING ERRCODE = '40001';
END $holdfast$
--
-- The oldest p_count shares of a lock, null: all, as a Record shows them, oldest first.
CREATE OR REPLACE FUNCTION @holdfast_shares@(p_name text, p_count bigint,
    OUT token bigint, OUT holder text, OUT since bigint, OUT until bigint, OUT left_over bigint, OUT is_kept boolean, OUT metadata text,
    OUT lim bigint)
RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN QUERY
    SELECT s.token, CASE WHEN s.is_kept THEN '' ELSE coalesce(s.holder, s.owner)::text END,
           (extract(epoch FROM s.acquired_at) * 1000000)::bigint, (extract(epoch FROM s.expires_at) * 1000000)::bigint,
           (extract(epoch FROM s.expires_at - clock_timestamp()) * 1000000)::bigint, s.is_kept,
           CASE WHEN s.is_kept OR pg_column_size(s.metadata) > 8192 THEN '' ELSE coalesce(s.metadata::text, '') END, s.lim
      FROM @shares@ AS s WHERE s.lock_name = p_name AND s.expires_at > clock_timestamp()
     ORDER BY s.token LIMIT p_count;
END $holdfast$
--
CREATE OR REPLACE FUNCTION @holdfast_shares_json@(p_name text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN (SELECT json_agg(json_build_array(f.token, f.holder, f.since, f.until, f.left_over, f.is_kept, f.metadata, f.lim) ORDER BY f.token)
              FROM @holdfast_shares@(p_name, NULL::bigint) AS f);
END $holdfast$
--
-- Reports whether an owner has a share under a token (0: any).
CREATE OR REPLACE FUNCTION @holdfast_has_share@(p_name text, p_owner text, p_token bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    PERFORM FROM @table@ AS t WHERE t.lock_name = p_name AND t.holder_id = '' AND t.kept_by = '' AND t.expires_at > clock_timestamp();
    RETURN FOUND AND EXISTS (
        SELECT FROM @shares@ AS s
         WHERE s.lock_name = p_name AND s.owner = p_owner AND NOT s.is_kept AND s.expires_at > clock_timestamp() AND p_token IN (0, s.token));
END $holdfast$
--
-- Prolongs a share under its token (0: any) until a time at least, and reports whether there is one.
-- The transaction has locked the row of the lock.
CREATE OR REPLACE FUNCTION @holdfast_renew_share@(p_name text, p_owner text, p_until timestamptz, p_token bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    is_renewed boolean;
BEGIN
    PERFORM FROM @table@ AS t WHERE t.lock_name = p_name AND t.holder_id = '' AND t.kept_by = '' AND t.expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE @shares@ AS s SET expires_at = greatest(s.expires_at, p_until), notify_to = NULL
     WHERE s.lock_name = p_name AND s.owner = p_owner AND NOT s.is_kept AND s.expires_at > clock_timestamp() AND p_token IN (0, s.token);
    is_renewed := FOUND;
    UPDATE @table@ AS t SET expires_at = p_until WHERE t.lock_name = p_name AND t.expires_at < p_until AND is_renewed;
    RETURN is_renewed;
END $holdfast$
--
-- Prolongs holds, which come sorted by name, under their tokens (0: any). The answer has a letter for
-- each: r renewed, l lost, b busy: the row is locked by another transaction; in upper case if
-- holdfast_notify is to be called. No row is waited for, since one that somebody has locked must not
-- cost the other locks.
CREATE OR REPLACE FUNCTION @holdfast_renew@(p_names text[], p_owners text[], p_ttls bigint[], p_tokens bigint[])
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $holdfast$
DECLARE
    outcomes text := '';
    v_name   text;        -- the name of which the transaction has locked the row for renewals of shares
    v_until  timestamptz; -- the latest end of those
    v_end    timestamptz;
    v_mine   boolean;
    v_over   boolean;
    v_shared boolean;
    v_letter text;
BEGIN
    FOR i IN 1..cardinality(p_names) LOOP
        IF v_name IS DISTINCT FROM p_names[i] THEN
            v_name := NULL;
            PERFORM FROM @table@ AS t
              WHERE t.lock_name = p_names[i] AND t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp() AND p_tokens[i] IN (0, t.token)
                FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE @table@ AS t
                   SET expires_at = greatest(t.expires_at, clock_timestamp() + p_ttls[i] * interval '1 microsecond')
                 WHERE t.lock_name = p_names[i];
                outcomes := outcomes || 'r';
                CONTINUE;
            END IF;
            SELECT t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp() AND p_tokens[i] IN (0, t.token),
                   t.has_waiters AND t.expires_at <= clock_timestamp(), t.holder_id = '' AND coalesce(t.kept_by = '', false)
              INTO v_mine, v_over, v_shared FROM @table@ AS t WHERE t.lock_name = p_names[i];
            v_letter := CASE WHEN v_mine THEN 'b' ELSE 'l' END;
            IF v_over OR v_shared THEN
                SELECT t.lock_name, t.holder_id = '' AND coalesce(t.kept_by = '', false) AND t.expires_at > clock_timestamp(), NULL
                  INTO v_name, v_shared, v_until
                  FROM @table@ AS t WHERE t.lock_name = p_names[i] FOR NO KEY UPDATE SKIP LOCKED;
                IF v_name IS NULL AND @holdfast_has_share@(p_names[i], p_owners[i], p_tokens[i]) THEN
                    v_letter := 'b';
                END IF;
            END IF;
        END IF;
        IF v_name IS NOT NULL THEN
            v_letter := 'l';
            IF v_shared THEN
                UPDATE @shares@ AS s
                   SET expires_at = greatest(s.expires_at, clock_timestamp() + p_ttls[i] * interval '1 microsecond'), notify_to = NULL
                 WHERE s.lock_name = v_name AND s.owner = p_owners[i] AND NOT s.is_kept AND s.expires_at > clock_timestamp() AND p_tokens[i] IN (0, s.token)
                RETURNING s.expires_at INTO v_end;
                IF FOUND THEN
                    v_letter := 'r';
                    v_until := greatest(v_until, v_end);
                END IF;
            END IF;
            -- Once for each name: a row that is changed again and again by one transaction gets slow.
            IF p_names[i + 1] IS DISTINCT FROM v_name THEN
                UPDATE @table@ AS t SET expires_at = v_until WHERE t.lock_name = v_name AND t.expires_at < v_until;
                IF (SELECT s.admitted FROM @holdfast_settle@(v_name, NULL::text) AS s) IS NOT NULL THEN
                    v_letter := upper(v_letter);
                END IF;
            END IF;
        END IF;
        outcomes := outcomes || v_letter;
    END LOOP;
    RETURN outcomes;
END $holdfast$
--
-- Prolongs places, which come sorted by name, or the holds that they have become. The letters are
-- those of holdfast_renew, and q: the place lasts. No row is waited for but a place of which the
-- transaction has the lock's row, so that no two of them wait for each other.
CREATE OR REPLACE FUNCTION @holdfast_refresh@(p_names text[], p_owners text[], p_queues bigint[])
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $holdfast$
DECLARE
    outcomes   text := '';
    v_admitted text[];
    v_letter   text;
    v_now      CONSTANT timestamptz := clock_timestamp(); -- one for all: the row of a lock with shares is changed once
    is_over    boolean;
    is_durable boolean := false;
BEGIN
    FOR i IN 1..cardinality(p_names) LOOP
        v_admitted := NULL;
        v_letter := 'l';
        SELECT t.expires_at <= clock_timestamp() OR t.holder_id = '' AND coalesce(t.kept_by = '', false) INTO is_over
          FROM @table@ AS t WHERE t.lock_name = p_names[i];
        IF is_over THEN
            PERFORM FROM @table@ AS t WHERE t.lock_name = p_names[i] FOR NO KEY UPDATE SKIP LOCKED;
            is_over := FOUND;
        END IF;
        PERFORM FROM @waiters@ AS w
          WHERE w.lock_name = p_names[i] AND w.owner = p_owners[i] AND w.until > clock_timestamp()
            FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE @waiters@ AS w SET until = greatest(w.until, clock_timestamp() + p_queues[i] * interval '1 microsecond')
             WHERE w.lock_name = p_names[i] AND w.owner = p_owners[i];
            v_letter := 'q';
        ELSE
            PERFORM FROM @waiters@ AS w
              WHERE w.lock_name = p_names[i] AND w.owner = p_owners[i] AND w.until > clock_timestamp();
            IF FOUND THEN
                v_letter := 'b'; -- It may be admitted by now.
            END IF;
        END IF;
        IF is_over AND v_letter <> 'b' THEN
            SELECT s.admitted INTO v_admitted FROM @holdfast_settle@(p_names[i], NULL::text) AS s;
        END IF;
        IF v_letter = 'l' OR p_owners[i] = ANY (v_admitted) THEN
            -- The place is gone. A statement that sees so sees what it has become, too.
            PERFORM FROM @table@ AS t
              WHERE t.lock_name = p_names[i] AND t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp()
                FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE @table@ AS t
                   SET expires_at = greatest(t.expires_at, clock_timestamp() + p_queues[i] * interval '1 microsecond'), notify_to = NULL
                 WHERE t.lock_name = p_names[i];
                v_letter := 'r';
                is_durable := true;
            ELSIF is_over AND @holdfast_renew_share@(p_names[i], p_owners[i], v_now + p_queues[i] * interval '1 microsecond', 0::bigint) THEN
                v_letter := 'r';
                is_durable := true;
            ELSE
                PERFORM FROM @table@ AS t
                  WHERE t.lock_name = p_names[i] AND t.holder_id = p_owners[i] AND t.expires_at > clock_timestamp();
                v_letter := CASE WHEN FOUND THEN 'b' ELSE 'l' END;
                IF v_letter = 'l' AND @holdfast_has_share@(p_names[i], p_owners[i], 0::bigint) THEN
                    v_letter := 'b';
                END IF;
            END IF;
        ELSIF v_letter = 'q' AND is_over IS NULL THEN
            -- A place whose lock has no row would wait for ever.
            DELETE FROM @waiters@ AS w WHERE w.lock_name = p_names[i] AND w.owner = p_owners[i];
            v_letter := 'l';
        END IF;
        is_durable := is_durable OR v_admitted IS NOT NULL;
        outcomes := outcomes || CASE WHEN v_admitted <> ARRAY[p_owners[i]] THEN upper(v_letter) ELSE v_letter END;
    END LOOP;
    IF NOT is_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN outcomes;
END $holdfast$
--
-- Ends a hold or a place; with p_keep above zero nobody can take the name for so long. One that
-- admits nobody waits for the disk only if it is durable, as one is that keeps the name: others rely on it.
CREATE OR REPLACE FUNCTION @holdfast_release@(p_name text, p_owner text, p_keep bigint, p_durable boolean,
    OUT ended boolean, OUT waiters boolean, OUT notify boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' SET enable_seqscan = off AS $holdfast$
DECLARE
    v_settled  record;
    v_admitted text[];
    is_shared  boolean := false; -- several hold the lock
    in_line    boolean := false; -- there may be others to admit
BEGIN
    FOR attempt IN 1..2 LOOP
        UPDATE @table@ AS t
           SET holder_id = '', holder = NULL, metadata = '{}',
               acquired_at = CASE WHEN p_keep > 0 THEN t.acquired_at ELSE clock_timestamp() END,
               expires_at = CASE WHEN p_keep > 0 THEN clock_timestamp() + p_keep * interval '1 microsecond' ELSE @past@ END,
               kept_by = CASE WHEN p_keep > 0 THEN p_owner END
         WHERE t.lock_name = p_name AND t.expires_at > clock_timestamp() AND p_owner <> ''
           AND (t.holder_id = p_owner OR p_keep > 0 AND t.holder_id = '' AND t.kept_by = p_owner)
        RETURNING t.has_waiters INTO waiters;
        ended := FOUND;
        EXIT WHEN ended OR attempt = 2;
        -- The place of the owner, if it has one, may be admitted until the row is locked, the last in
        -- the queue since the update above.
        SELECT t.holder_id = '' AND coalesce(t.kept_by = '', false) INTO is_shared FROM @table@ AS t
         WHERE t.lock_name = p_name AND (t.has_waiters OR t.holder_id = p_owner AND t.expires_at > clock_timestamp()) FOR NO KEY UPDATE;
        in_line := FOUND;
        EXIT WHEN NOT FOUND OR is_shared;
    END LOOP;
    waiters := coalesce(waiters, false);
    in_line := in_line OR waiters;
    notify := false;
    IF is_shared THEN
        IF p_keep > 0 THEN
            UPDATE @shares@ AS s
               SET is_kept = true, holder = NULL, metadata = '{}', notify_to = NULL, expires_at = clock_timestamp() + p_keep * interval '1 microsecond'
             WHERE s.lock_name = p_name AND s.owner = p_owner AND s.expires_at > clock_timestamp();
        ELSE
            DELETE FROM @shares@ AS s
             WHERE s.lock_name = p_name AND s.owner = p_owner AND NOT s.is_kept AND s.expires_at > clock_timestamp();
        END IF;
        ended := FOUND;
        IF ended THEN
            UPDATE @table@ AS t
               SET expires_at = coalesce((SELECT s.expires_at FROM @shares@ AS s WHERE s.lock_name || '' = p_name ORDER BY s.expires_at DESC LIMIT 1), @past@),
                   has_waiters = EXISTS (SELECT FROM @shares@ AS s WHERE s.lock_name = p_name) OR EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = p_name)
             WHERE t.lock_name = p_name
            RETURNING t.has_waiters, EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = p_name) INTO waiters, in_line;
        END IF;
    END IF;
    IF in_line THEN
        SELECT s.left_queue, s.admitted, s.waiters INTO v_settled FROM @holdfast_settle@(p_name, p_owner) AS s;
        v_admitted := v_settled.admitted;
        waiters := v_settled.waiters;
        notify := v_admitted IS NOT NULL OR ended AND waiters;
        ended := ended OR v_settled.left_queue AND p_keep = 0;
    END IF;
    IF v_admitted IS NULL AND NOT p_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $holdfast$
--
-- Ends whatever hold, keep or shares a name has, or the hold or share that has p_token (0: any), and
-- describes them. After a wait for the row, the conditions are checked again.
CREATE OR REPLACE FUNCTION @holdfast_break@(p_name text, p_token bigint,
    OUT token bigint, OUT holder text, OUT since bigint, OUT until bigint, OUT left_over bigint, OUT is_kept boolean, OUT metadata text,
    OUT lim bigint)
RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' AS $holdfast$
DECLARE
    is_shared boolean; -- several hold it
    in_line   boolean;
BEGIN
    SELECT t.holder_id = '' AND coalesce(t.kept_by = '', false), t.has_waiters INTO is_shared, in_line FROM @table@ AS t
     WHERE t.lock_name = p_name AND t.expires_at > clock_timestamp()
       AND (p_token = 0 OR t.holder_id = '' AND t.kept_by = '' OR p_token = t.token AND t.granted_at = t.acquired_at) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    ELSIF is_shared THEN
        RETURN QUERY SELECT f.* FROM @holdfast_shares@(p_name, NULL::bigint) AS f WHERE p_token IN (0, f.token);
        DELETE FROM @shares@ AS s WHERE s.lock_name = p_name AND p_token IN (0, s.token);
        UPDATE @table@ AS t
           SET expires_at = coalesce((SELECT s.expires_at FROM @shares@ AS s WHERE s.lock_name || '' = p_name ORDER BY s.expires_at DESC LIMIT 1), @past@)
         WHERE t.lock_name = p_name;
    ELSE
        RETURN QUERY SELECT @record@, 0::bigint FROM @table@ AS t WHERE t.lock_name = p_name;
        UPDATE @table@ AS t
           SET holder_id = '', holder = NULL, metadata = '{}', kept_by = NULL, acquired_at = clock_timestamp(), expires_at = @past@
         WHERE t.lock_name = p_name;
    END IF;
    IF is_shared OR in_line THEN
        PERFORM @holdfast_settle@(p_name, NULL::text);
    END IF;
END $holdfast$
--
-- Deletes rows that have been free for an hour, some thousands of them, and returns how many. A row
-- whose token the clock has not passed yet stays, and one that others wait for.
CREATE OR REPLACE FUNCTION @sweep_locks@() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_now   CONSTANT timestamptz := clock_timestamp();
    v_idle  CONSTANT timestamptz := v_now - interval '1 hour';
    v_limit CONSTANT integer := 10000;
    v_token CONSTANT bigint := (extract(epoch FROM v_now) * 1000000)::bigint;
    v_count integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM @waiters@ AS w
     WHERE (w.lock_name, w.owner) IN (
        SELECT d.lock_name, d.owner FROM @waiters@ AS d WHERE d.until <= v_idle LIMIT v_limit FOR UPDATE SKIP LOCKED);
    DELETE FROM @shares@ AS s
     WHERE (s.lock_name, s.owner) IN (
        SELECT d.lock_name, d.owner FROM @shares@ AS d WHERE d.expires_at <= v_idle LIMIT v_limit FOR UPDATE SKIP LOCKED);
    DELETE FROM @table@ AS t
     WHERE t.lock_name IN (
        SELECT d.lock_name FROM @table@ AS d
         WHERE d.expires_at <= v_idle AND d.acquired_at <= v_idle AND greatest(d.token, d.last_token) < v_token
           AND (NOT d.has_waiters OR NOT EXISTS (SELECT FROM @waiters@ AS w WHERE w.lock_name = d.lock_name)
                AND NOT EXISTS (SELECT FROM @shares@ AS s WHERE s.lock_name = d.lock_name))
         LIMIT v_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $holdfast$
--
-- For every language: acquire_lock, acquire_lock_token, extend_lock, release_lock.
-- None has a default, since an overload without one would be a better match.
-- Takes a lock that is free, or extends one's own, and returns the fencing token;
-- null: it is held by somebody else, others wait for it, or a transaction has the row open.
CREATE OR REPLACE FUNCTION @acquire_lock_token@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision, p_metadata jsonb)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    RETURN @acquire_slot@(p_lock_name, p_holder_id, p_ttl_seconds, p_metadata, 0);
END $holdfast$
--
-- Takes a lock together with others, or extends one's own, and returns the fencing token as
-- acquire_lock_token does: with a limit of -1 as a reader, with one above zero as one of at most so
-- many.
CREATE OR REPLACE FUNCTION @acquire_slot@(p_lock_name text, p_holder_id text, p_ttl_seconds double precision, p_metadata jsonb, p_limit integer)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_token  bigint;
    v_notify boolean;
BEGIN
    IF p_limit IS NULL OR p_limit < -1 THEN
        RAISE EXCEPTION 'the limit of a lock is -1 or more' USING ERRCODE = '22023';
    END IF;
    IF p_lock_name IS NULL OR p_lock_name = '' OR p_holder_id IS NULL OR p_holder_id = '' THEN
        RAISE EXCEPTION 'a lock needs a name and a holder id' USING ERRCODE = '22023';
    ELSIF length(p_lock_name) > 255 OR length(p_holder_id) > 255 THEN
        RAISE EXCEPTION 'the name and the holder id of a lock have 255 characters at most' USING ERRCODE = '22001';
    ELSIF p_ttl_seconds IS NULL OR p_ttl_seconds NOT BETWEEN 0.01 AND 31536000 THEN
        RAISE EXCEPTION 'the TTL of a lock is 0.01 to 31536000 seconds' USING ERRCODE = '22023';
    ELSIF pg_column_size(p_metadata) > 8192 THEN
        RAISE EXCEPTION 'the metadata of a lock is larger than 8 kB' USING ERRCODE = '22023';
    END IF;
    SELECT a.granted, a.notify INTO v_token, v_notify
      FROM @holdfast_acquire@(p_lock_name, p_holder_id, NULL::text, (p_ttl_seconds * 1000000)::bigint, 0::bigint, 1::bigint, p_metadata,
                              0::bigint, false, NULL::text, p_limit::bigint) AS a;
    IF v_notify THEN
        PERFORM @holdfast_notify@(ARRAY[p_lock_name]);
    END IF;
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
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '@row_wait@' AS $holdfast$
BEGIN
    IF p_ttl_seconds IS NULL OR p_ttl_seconds NOT BETWEEN 0.01 AND 31536000 THEN
        RAISE EXCEPTION 'the TTL of a lock is 0.01 to 31536000 seconds' USING ERRCODE = '22023';
    END IF;
    UPDATE @table@ AS t
       SET expires_at = greatest(t.expires_at, clock_timestamp() + p_ttl_seconds * interval '1 second')
     WHERE t.lock_name = p_lock_name AND t.holder_id = p_holder_id AND p_holder_id <> '' AND t.expires_at > clock_timestamp();
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM @table@ AS t WHERE t.lock_name = p_lock_name AND t.holder_id = '' AND t.kept_by = '' FOR NO KEY UPDATE;
    RETURN FOUND AND @holdfast_renew_share@(p_lock_name, p_holder_id, clock_timestamp() + p_ttl_seconds * interval '1 second', 0::bigint);
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
-- Lets go of one's own lock. The first of those that wait for it gets it, and is notified at the
-- commit. False: one did not hold it.
CREATE OR REPLACE FUNCTION @release_lock@(p_lock_name text, p_holder_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    v_ended  boolean;
    v_notify boolean;
BEGIN
    SELECT r.ended, r.notify INTO v_ended, v_notify
      FROM @holdfast_release@(p_lock_name, p_holder_id, 0::bigint, true) AS r;
    IF v_notify THEN
        PERFORM @holdfast_notify@(ARRAY[p_lock_name]);
    END IF;
    RETURN v_ended;
END $holdfast$
