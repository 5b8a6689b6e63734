-- Sees to it that the table can exclude, whoever made it: mends it in place, with
-- the locks in it, or refuses it with the statement that would.
DO $holdfast$
DECLARE
    v_table CONSTANT regclass := @table_literal@::regclass;
    v_schema CONSTANT oid := pg_catalog.to_regnamespace(@schema_literal@::text);
    v_mends boolean; -- a table of somebody else is looked at only
    v_fault record;
BEGIN
    PERFORM pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true);
    SELECT relowner IN (@trusted@) INTO v_mends FROM pg_class WHERE oid = v_table;
    FOR round IN 1..4 LOOP
        FOR v_fault IN
            WITH wanted (name, kind, required, own_default) AS (VALUES
                ('lock_name', 'C text', true, NULL), ('holder_id', 'text', true, NULL), ('acquired_at', 'time', true, NULL),
                ('expires_at', 'time', true, NULL), ('metadata', 'jsonb', NULL, NULL), ('token', 'bigint', true, '0'),
                ('holder', 'text', false, ''), ('granted_at', 'time', false, ''), ('kept_by', 'text', false, ''),
                ('last_token', 'bigint', false, ''), ('has_waiters', 'boolean', true, 'false'), ('notify_to', 'text', false, '')
            ), columns AS (
                SELECT a.attnum, a.attname, a.attnotnull, a.attidentity, a.attgenerated, a.atthasdef, w.name IS NOT NULL AS own,
                       w.kind, w.required, w.own_default, pg_get_expr(d.adbin, d.adrelid) AS expression,
                       format_type(a.atttypid, a.atttypmod) AS type, t.typnotnull,
                       CASE w.kind
                           WHEN 'bigint' THEN a.atttypid = 'bigint'::regtype
                           WHEN 'boolean' THEN a.atttypid = 'boolean'::regtype
                           WHEN 'jsonb' THEN a.atttypid = 'jsonb'::regtype
                           WHEN 'time' THEN a.atttypid = 'timestamptz'::regtype AND a.atttypmod IN (-1, 6)
                           ELSE a.atttypid IN ('text'::regtype, 'varchar'::regtype) AND (a.atttypmod = -1 OR a.atttypmod >= 255 + 4)
                                AND c.collisdeterministic AND (w.kind = 'text' OR c.oid = '"C"'::regcollation)
                       END AS good,
                       CASE w.kind
                           WHEN 'bigint' THEN format('TYPE bigint USING %I::bigint', a.attname)
                           WHEN 'boolean' THEN 'TYPE boolean USING false'
                           WHEN 'jsonb' THEN format('TYPE jsonb USING %I::text::jsonb', a.attname)
                           WHEN 'time' THEN format('TYPE timestamptz USING %I::timestamptz', a.attname)
                           WHEN 'text' THEN format('TYPE varchar(255) COLLATE pg_catalog."default" USING %I::text', a.attname)
                           WHEN 'C text' THEN format('TYPE varchar(255) COLLATE pg_catalog."C" USING %I::text', a.attname)
                       END AS retype
                  FROM pg_attribute AS a
                  JOIN pg_type AS t ON t.oid = a.atttypid
                  LEFT JOIN wanted AS w ON w.name = a.attname
                  LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                  LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
                 WHERE a.attrelid = v_table AND a.attnum > 0 AND NOT a.attisdropped
            ), indexes AS (
                SELECT i.*, i.indkey::int2[] AS keys, i.indcollation::oid[] AS collations, o.conname,
                       (SELECT attnum FROM columns WHERE attname = 'lock_name') AS lock_name
                  FROM pg_index AS i LEFT JOIN pg_constraint AS o ON o.conindid = i.indexrelid AND o.conrelid = i.indrelid
                 WHERE i.indrelid = v_table
            )
            -- Each fault, the statement that mends it if that loses nothing, and else what a person would do.
            SELECT 1 AS place, format('column %I is missing', w.name) AS problem,
                   CASE w.name WHEN 'metadata' THEN format('ALTER TABLE %s ADD COLUMN metadata jsonb', v_table) END AS cure,
                   format('ALTER TABLE %s RENAME COLUMN ... TO %I', v_table, w.name) AS advice
              FROM wanted AS w WHERE w.name NOT IN (SELECT attname FROM columns)
            UNION ALL
            SELECT 2, format('it has row security, which hides locks'), NULL, format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', v_table)
              FROM pg_class WHERE oid = v_table AND relrowsecurity
            UNION ALL
            SELECT 2, format('it inherits, or others inherit from it, and no index spans them'), NULL,
                   format('ALTER TABLE %s NO INHERIT %s', inhrelid::regclass, inhparent::regclass)
              FROM pg_inherits WHERE v_table IN (inhrelid, inhparent)
            UNION ALL
            SELECT 2, format('it has the trigger %I, which may change or refuse what is written', tgname), NULL,
                   format('DROP TRIGGER %I ON %s', tgname, v_table)
              FROM pg_trigger WHERE tgrelid = v_table AND NOT tgisinternal AND tgenabled <> 'D'
            UNION ALL
            SELECT 2, format('it has the rule %I, which may change or refuse what is written', rulename), NULL,
                   format('DROP RULE %I ON %s', rulename, v_table)
              FROM pg_rewrite WHERE ev_class = v_table AND ev_enabled <> 'D'
            UNION ALL
            SELECT 2, format('it has the constraint %I, which may refuse what is written', conname), NULL,
                   format('ALTER TABLE %s DROP CONSTRAINT %I', v_table, conname)
              FROM pg_constraint WHERE conrelid = v_table AND contype IN ('c', 'f')
               AND (conkey IS NULL OR EXISTS (SELECT FROM columns WHERE own AND attnum = ANY (conkey)))
            UNION ALL
            SELECT 2, format('the table %s refers to it by %I, which keeps rows from being deleted', conrelid::regclass, conname), NULL,
                   format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
              FROM pg_constraint WHERE confrelid = v_table AND conrelid <> v_table AND contype = 'f' AND conparentid = 0
            UNION ALL
            SELECT 3, format('column %I is an identity or generated', attname),
                   format('ALTER TABLE %s ALTER COLUMN %I DROP %s', v_table, attname, CASE attidentity WHEN '' THEN 'EXPRESSION' ELSE 'IDENTITY' END),
                   format('ALTER TABLE %s ALTER COLUMN %I DROP %s', v_table, attname, CASE attidentity WHEN '' THEN 'EXPRESSION' ELSE 'IDENTITY' END)
              FROM columns WHERE own AND (attidentity <> '' OR attgenerated <> '')
            UNION ALL
            SELECT 4, format('column %I is of type %s', attname, type),
                   -- In which zone a timestamp was written, nobody knows.
                   CASE WHEN kind <> 'time' OR type LIKE 'timestamp%with time zone' THEN
                       concat(CASE WHEN atthasdef THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT; ', v_table, attname) END,
                              format('ALTER TABLE %s ALTER COLUMN %I %s', v_table, attname, retype)) END,
                   CASE WHEN kind <> 'time' THEN format('ALTER TABLE %s ALTER COLUMN %I %s', v_table, attname, retype)
                   ELSE format('ALTER TABLE %s ALTER COLUMN %I TYPE timestamptz USING %I AT TIME ZONE ''UTC''', v_table, attname, attname)
                        || ', with the time zone in which it was written' END
              FROM columns WHERE own AND NOT good
            UNION ALL
            SELECT 5, format('column %I may not be null', attname),
                   format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', v_table, attname),
                   format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', v_table, attname)
              FROM columns WHERE own AND required = false AND attnotnull
            UNION ALL
            SELECT 5, format('column %I has the default %s', attname, coalesce(expression, 'null')),
                   format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', v_table, attname, coalesce(nullif(own_default, ''), 'NULL')),
                   format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', v_table, attname, coalesce(nullif(own_default, ''), 'NULL'))
              FROM columns
             WHERE own AND attgenerated = '' AND own_default IS NOT NULL
               AND NOT CASE own_default WHEN '' THEN coalesce(expression, 'NULL') LIKE 'NULL%'
                       ELSE coalesce(expression, '') IN (own_default, '(0)::bigint', '''0''::bigint') END
            UNION ALL
            SELECT 6, format('column %I may be null', attname),
                   concat(CASE WHEN own_default <> '' THEN format('UPDATE %s SET %I = %s WHERE %2$I IS NULL; ', v_table, attname, own_default) END,
                          format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', v_table, attname)),
                   format('DELETE FROM %s WHERE %I IS NULL', v_table, attname)
              FROM columns WHERE own AND required AND NOT attnotnull
            UNION ALL
            SELECT 7, format('column %I, which is not of this package, must have a value', attname), NULL,
                   format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL, or SET DEFAULT ...', v_table, attname)
              FROM columns WHERE NOT own AND (attnotnull OR typnotnull) AND NOT atthasdef AND attidentity = '' AND attgenerated = ''
            UNION ALL
            SELECT 8, format('%s forbids two rows that are two locks', indexrelid::regclass), NULL,
                   CASE WHEN conname IS NULL THEN format('DROP INDEX %s', indexrelid::regclass) ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', v_table, conname) END
              FROM indexes
             WHERE (indisunique OR indisexclusion)
               AND NOT (NOT indisexclusion AND lock_name = ANY (keys[0:indnkeyatts - 1])
                        AND (SELECT bool_and(c.collisdeterministic) FROM pg_collation AS c WHERE c.oid = ANY (collations)) IS NOT false)
               AND NOT (NOT indisexclusion AND (SELECT bool_and(k.attnum IS NOT NULL)
                          FROM unnest(keys[0:indnkeyatts - 1]) AS u(key)
                          LEFT JOIN columns AS k ON k.attnum = u.key AND NOT k.own AND
                               (k.attidentity <> '' OR k.expression IS NULL OR k.expression ~ 'nextval|random|uuid')))
            UNION ALL
            -- PostgreSQL refuses ON CONFLICT (lock_name) while there is one, whatever else there is.
            SELECT 8, format('%s is checked too late, being deferrable', indexrelid::regclass),
                   format('ALTER TABLE %s DROP CONSTRAINT %I', v_table, conname), format('ALTER TABLE %s DROP CONSTRAINT %I', v_table, conname)
              FROM indexes WHERE indisunique AND NOT indimmediate AND indnkeyatts = 1 AND keys[0] = lock_name
            UNION ALL
            SELECT 9, 'two rows may have one lock_name: there is no valid, immediate unique index on it alone',
                   -- A table that is published must have a key.
                   CASE WHEN EXISTS (SELECT FROM indexes WHERE indisprimary) THEN format('CREATE UNIQUE INDEX ON %s (lock_name)', v_table)
                   ELSE format('ALTER TABLE %s ADD PRIMARY KEY (lock_name)', v_table) END,
                   format('DELETE FROM %s AS a USING %1$s AS b WHERE a.lock_name = b.lock_name AND a.ctid <> b.ctid'
                          ' AND (a.expires_at, a.ctid) < (b.expires_at, b.ctid), and then CREATE UNIQUE INDEX ON %1$s (lock_name)', v_table)
             WHERE NOT EXISTS (
                SELECT FROM indexes AS i JOIN pg_opclass AS o ON o.oid = i.indclass[0] JOIN pg_collation AS c ON c.oid = i.collations[0]
                 WHERE i.indisunique AND i.indisvalid AND i.indisready AND i.indislive AND i.indimmediate AND i.indpred IS NULL
                   AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND i.keys[0] = i.lock_name AND o.opcdefault AND c.collisdeterministic)
            UNION ALL
            SELECT 10, 'its rows have no identity, without which a table that is published cannot be updated',
                   (SELECT format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', v_table, x.relname)
                      FROM indexes AS i JOIN pg_class AS x ON x.oid = i.indexrelid
                     WHERE i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
                       AND i.indnkeyatts = 1 AND i.keys[0] = i.lock_name LIMIT 1),
                   format('ALTER TABLE %s REPLICA IDENTITY FULL', v_table)
              FROM pg_class AS t
             WHERE t.oid = v_table AND NOT CASE t.relreplident WHEN 'd' THEN EXISTS (SELECT FROM indexes WHERE indisprimary AND indisvalid)
                       WHEN 'i' THEN EXISTS (SELECT FROM indexes WHERE indisreplident AND indisvalid) WHEN 'n' THEN false ELSE true END
             ORDER BY 1
        LOOP
            -- Some faults are gone when another is mended.
            CONTINUE WHEN v_fault.cure IS NULL AND v_fault.place >= 7 AND round < 4;
            IF round = 4 OR v_fault.cure IS NULL OR NOT v_mends THEN
                RAISE EXCEPTION 'the table % cannot be used for locks: %: to mend it, %', v_table, v_fault.problem, v_fault.advice USING ERRCODE = 'HF004';
            END IF;
            BEGIN
                EXECUTE v_fault.cure;
            EXCEPTION WHEN OTHERS THEN
                RAISE EXCEPTION 'the table % cannot be used for locks: % (%): to mend it, %', v_table, v_fault.problem, SQLERRM, v_fault.advice
                    USING ERRCODE = CASE SQLSTATE WHEN '40001' THEN '40001' WHEN '40P01' THEN '40P01' ELSE 'HF004' END;
            END;
        END LOOP;
    END LOOP;
END $holdfast$
