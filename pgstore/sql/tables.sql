-- The locks. The row of a free name stays for a while, since it has the last token of the name.
-- Most updates stay within their page: pages are half empty, and no index has a column that
-- changes. The columns that an update changes are beside each other, since the log has only that
-- part of a row. Vacuum starts after a number of updates, whatever their share of the rows.
CREATE TABLE IF NOT EXISTS locks (
    name       text COLLATE "C" PRIMARY KEY,
    owner      text,                           -- the secret of the owner; null: nobody
    expires    timestamptz NOT NULL,
    token      bigint NOT NULL,
    last_token bigint NOT NULL,                -- the greatest that the name has had
    since      timestamptz NOT NULL,
    tokens     integer NOT NULL,               -- how many consecutive tokens the hold has
    lim        integer NOT NULL,               -- how many holds there may be, this one included
    kept       boolean NOT NULL,               -- it was released, and the name stays taken
    others     boolean NOT NULL DEFAULT false, -- there may be rows of the name in holds and places
    holder     text,                           -- for people
    metadata   jsonb,
    channel    text                            -- the one by which the owner is notified
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.5)
--
-- The holds of a name beside the one in locks.
CREATE TABLE IF NOT EXISTS holds (
    name     text COLLATE "C" NOT NULL,
    owner    text NOT NULL,
    token    bigint NOT NULL,
    tokens   integer NOT NULL,
    lim      integer NOT NULL,
    kept     boolean NOT NULL,
    since    timestamptz NOT NULL,
    expires  timestamptz NOT NULL,
    holder   text,
    metadata jsonb,
    channel  text,
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
--
-- The places, behind the holds. A crash of the server empties the table, since it is unlogged.
CREATE UNLOGGED TABLE IF NOT EXISTS places (LIKE holds, PRIMARY KEY (name, owner))
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
--
CREATE INDEX IF NOT EXISTS places_in_order ON places (name, token)
--
CREATE OR REPLACE VIEW entries AS
    SELECT name, owner, token, tokens, lim, kept, since, expires, holder, metadata, channel, true AS hold FROM locks WHERE owner IS NOT NULL
    UNION ALL
    SELECT name, owner, token, tokens, lim, kept, since, expires, holder, metadata, channel, true FROM holds
    UNION ALL
    SELECT name, owner, token, tokens, lim, kept, since, expires, holder, metadata, channel, false FROM places
