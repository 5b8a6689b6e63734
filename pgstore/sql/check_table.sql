-- Refuses tables that are not as they are made above: they may not exclude, or may lose locks.
DO $holdfast$
DECLARE
    v_found record;
BEGIN
    PERFORM pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true);
    FOR v_found IN
        WITH tables (id, key, columns) AS (VALUES
            (@table_literal@::regclass, 'PRIMARY KEY (lock_name)', ARRAY['lock_name character varying(255) "C" not null', 'holder_id character varying(255) not null',
                'acquired_at timestamp with time zone not null', 'expires_at timestamp with time zone not null', 'metadata jsonb', 'token bigint not null default 0',
                'holder character varying(255)', 'granted_at timestamp with time zone', 'kept_by character varying(255)', 'last_token bigint',
                'has_waiters boolean not null default false', 'notify_to character varying(255)']),
            (@shares_literal@::regclass, 'PRIMARY KEY (lock_name, owner)', ARRAY['lock_name character varying(255) "C" not null', 'owner character varying(255) not null',
                'lim bigint not null', 'token bigint not null', 'last_token bigint not null', 'acquired_at timestamp with time zone not null',
                'expires_at timestamp with time zone not null', 'is_kept boolean not null default false', 'holder character varying(255)', 'metadata jsonb',
                'notify_to character varying(255)']),
            (@waiters_literal@::regclass, 'PRIMARY KEY (lock_name, owner)', ARRAY['lock_name character varying(255) "C" not null', 'owner character varying(255) not null',
                'place bigint not null', 'until timestamp with time zone not null', 'holder character varying(255)', 'metadata jsonb', 'floor bigint not null',
                'tokens bigint not null', 'notify_to character varying(255)', 'lim bigint not null'])
        ), found AS (
            SELECT a.attrelid AS id, concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
                       CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::regcollation::text END, CASE WHEN a.attnotnull THEN 'not null' END,
                       'default ' || pg_get_expr(d.adbin, d.adrelid), nullif(concat(a.attidentity, a.attgenerated), '')) AS definition
              FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
             WHERE a.attrelid IN (SELECT id FROM tables) AND a.attnum > 0 AND NOT a.attisdropped
        )
        SELECT 1 AS place, t.id, format('it has no column "%s"', c) AS difference
          FROM tables AS t, unnest(t.columns) AS c WHERE (t.id, c) NOT IN (SELECT f.id, f.definition FROM found AS f)
        UNION ALL
        SELECT 2, f.id, format('it has the column "%s"', f.definition)
          FROM found AS f WHERE (f.id, f.definition) NOT IN (SELECT t.id, c FROM tables AS t, unnest(t.columns) AS c)
        UNION ALL
        SELECT 3, t.id, format('it has no %s', t.key)
          FROM tables AS t WHERE NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = t.id AND pg_get_constraintdef(o.oid) = t.key)
        UNION ALL
        SELECT 4, t.id, format('it has the constraint %I', o.conname) FROM tables AS t JOIN pg_constraint AS o ON t.id IN (o.conrelid, o.confrelid) AND o.contype NOT IN ('p', 'n')
        UNION ALL
        SELECT 5, t.id, format('it has the unique index %s', i.indexrelid::regclass) FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id AND i.indisunique AND NOT i.indisprimary
        UNION ALL
        SELECT 6, t.id, format('it has the trigger %I', g.tgname) FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.id AND NOT g.tgisinternal AND g.tgenabled <> 'D'
        UNION ALL
        SELECT 7, t.id, format('it has the rule %I', r.rulename) FROM tables AS t JOIN pg_rewrite AS r ON r.ev_class = t.id AND r.ev_enabled <> 'D'
        UNION ALL
        SELECT 8, t.id, 'it has row security' FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relrowsecurity
        UNION ALL
        SELECT 9, t.id, 'it inherits, or others inherit from it' FROM tables AS t JOIN pg_inherits AS h ON t.id IN (h.inhrelid, h.inhparent)
         ORDER BY 1, 3
    LOOP
        RAISE EXCEPTION 'the table % cannot be used for locks: %: to mend it, undo that, or make another table, by Options.Table or the parameter table of the URL',
            v_found.id, v_found.difference USING ERRCODE = 'HF004';
    END LOOP;
END $holdfast$
