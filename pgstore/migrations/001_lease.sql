-- The table. One that was made by hand with the first five columns is taken over.
CREATE TABLE IF NOT EXISTS @table@ (
    lock_name   varchar(255) COLLATE "C" PRIMARY KEY,
    holder_id   varchar(255) NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    metadata    jsonb
)
--
ALTER TABLE @table@
    ADD COLUMN IF NOT EXISTS token bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS holder varchar(255),
    ADD COLUMN IF NOT EXISTS granted_at timestamptz,
    ADD COLUMN IF NOT EXISTS kept_by varchar(255),
    ADD COLUMN IF NOT EXISTS last_token bigint
--
-- Half-empty pages and no index on a time keep every update within its page
-- (HOT); vacuum comes after a number of updates, not after a share of the rows.
ALTER TABLE @table@ SET (fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.5)
--
COMMENT ON TABLE @table@ IS
    'Locks. A lock is held while expires_at is in the future; a row whose time is over is free, and is kept for its token.'
--
COMMENT ON COLUMN @table@.holder_id IS
    'Who may extend and release the lock: the identity given to acquire_lock, or a secret of package holdfast. Empty: released, and only kept from others until expires_at.'
--
COMMENT ON COLUMN @table@.token IS
    'The fencing token of the last grant; it rises with every grant of the name.'
--
COMMENT ON COLUMN @table@.holder IS
    'Whom package holdfast shows as the holder; null: holder_id is shown.'
--
COMMENT ON COLUMN @table@.granted_at IS
    'Equal to acquired_at if token and holder belong to the present hold: a program that writes the table itself does not set them.'
--
COMMENT ON COLUMN @table@.kept_by IS
    'Whose release the name is kept after.'
--
COMMENT ON COLUMN @table@.last_token IS
    'The last token of a grant that had several; it means nothing if it is below token.'
