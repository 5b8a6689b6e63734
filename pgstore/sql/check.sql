-- Refuses a schema in which others than those that may be trusted can run code with the rights of
-- those who use the locks, and tables that are not as they are made. Trusted are superusers, the
-- owner of the database, oneself, and, unless one is a superuser, every role that one is a member
-- of.
DO $$
DECLARE
    v_schema CONSTANT oid := pg_catalog.to_regnamespace(@schema_literal@);
    v_fault  text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    WITH trusted AS (
        SELECT r.oid FROM pg_roles AS r, pg_roles AS me
         WHERE me.rolname = current_user
           AND (r.oid = me.oid OR r.rolsuper OR NOT me.rolsuper AND pg_has_role(me.oid, r.oid, 'USAGE')
                OR r.oid = (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database()))
    ), made (name, persistence, columns) AS (VALUES
        ('locks', 'p', ARRAY['name text not null "C"', 'owner text', 'token bigint not null', 'tokens integer not null', 'lim integer not null', 'kept boolean not null',
            'since timestamp with time zone not null', 'expires timestamp with time zone not null', 'holder text', 'metadata jsonb', 'channel text',
            'last_token bigint not null', 'others boolean not null']),
        ('holds', 'p', ARRAY['name text not null "C"', 'owner text not null', 'token bigint not null', 'tokens integer not null', 'lim integer not null',
            'kept boolean not null', 'since timestamp with time zone not null', 'expires timestamp with time zone not null', 'holder text', 'metadata jsonb', 'channel text'])
    ), expected AS (
        SELECT m.* FROM made AS m UNION ALL SELECT 'places', 'u', m.columns FROM made AS m WHERE m.name = 'holds'
    ), tables AS (
        SELECT c.oid, e.*, c.relkind, c.relpersistence, c.relrowsecurity, c.relhasrules, c.relhassubclass, c.relispartition FROM expected AS e
          JOIN pg_class AS c ON c.relname = e.name AND c.relnamespace = v_schema
    ), found AS (
        SELECT t.oid, concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
                   CASE WHEN a.attcollation <> y.typcollation THEN a.attcollation::regcollation::text END) AS definition
          FROM tables AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type AS y ON y.oid = a.atttypid
    ), faults (place, fault) AS (
        SELECT 1, format('the schema belongs to %I, who could run code with the rights of everybody who locks: migrate as that user, if it is to be trusted, or use another schema', n.nspowner::regrole::text)
          FROM pg_namespace AS n WHERE n.oid = v_schema AND n.nspowner NOT IN (SELECT oid FROM trusted)
           AND has_database_privilege(current_database(), 'CREATE') -- others have to trust those who can make schemas
        UNION ALL
        SELECT 2, format('everybody may create in the schema: REVOKE CREATE ON SCHEMA %s FROM PUBLIC, or use another schema', v_schema::regnamespace)
          FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.oid = v_schema AND a.grantee = 0 AND a.privilege_type = 'CREATE'
        UNION ALL
        SELECT 3, format('%s belongs to %I, and could run code with the rights of everybody who locks: drop it, or use another schema', o.object, o.owner::regrole::text)
          FROM (SELECT 'the relation ' || c.oid::regclass, c.relowner FROM pg_class AS c WHERE c.relnamespace = v_schema AND c.relkind <> 'i'
                UNION ALL
                SELECT 'the operator ' || p.oid::regoperator, p.oprowner FROM pg_operator AS p WHERE p.oprnamespace = v_schema
                UNION ALL
                SELECT 'the function ' || p.oid::regprocedure, p.proowner FROM pg_proc AS p WHERE p.pronamespace = v_schema) AS o (object, owner)
         WHERE o.owner NOT IN (SELECT oid FROM trusted UNION SELECT n.nspowner FROM pg_namespace AS n WHERE n.oid = v_schema)
        UNION ALL
        SELECT 4, 'the schema has the table distributed_locks of the second edition, whose programs would not exclude those of this one: end them, then drop it, or use another schema'
          FROM pg_class AS c WHERE c.relnamespace = v_schema AND c.relname = 'distributed_locks'
        UNION ALL
        SELECT 5, format('%s is not an ordinary table: rename it, or use another schema', t.oid::regclass)
          FROM tables AS t WHERE t.relkind <> 'r' OR t.relispartition
        UNION ALL
        SELECT 6, format('the table %s has no column "%s": drop it, if it was made by an older version and no lock is held, or use another schema', t.oid::regclass, c)
          FROM tables AS t, unnest(t.columns) AS c WHERE (t.oid, c) NOT IN (SELECT f.oid, f.definition FROM found AS f)
        UNION ALL
        SELECT 7, format('the table %s has the column "%s": drop that, or use another schema', f.oid::regclass, f.definition)
          FROM found AS f WHERE (f.oid, f.definition) NOT IN (SELECT t.oid, c FROM tables AS t, unnest(t.columns) AS c)
        UNION ALL
        SELECT 8, format('the table %s is %s: ALTER TABLE %s SET %s', t.oid::regclass, CASE t.persistence WHEN 'p' THEN 'unlogged' ELSE 'logged' END,
                         t.oid::regclass, CASE t.persistence WHEN 'p' THEN 'LOGGED' ELSE 'UNLOGGED' END)
          FROM tables AS t WHERE t.persistence <> t.relpersistence::text
        UNION ALL
        SELECT 9, format('the table %s has row security, rules, a trigger, a second constraint or unique index, or no primary key, or inherits: undo that, or use another schema', t.oid::regclass)
          FROM tables AS t
         WHERE t.relrowsecurity OR t.relhasrules OR t.relhassubclass
            OR EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.oid AND NOT g.tgisinternal)
            OR EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = t.oid)
            OR EXISTS (SELECT FROM pg_constraint AS o WHERE t.oid IN (o.conrelid, o.confrelid) AND o.contype NOT IN ('p', 'n'))
            OR 1 <> (SELECT count(*) FROM pg_index AS i WHERE i.indrelid = t.oid AND i.indisunique)
            OR NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = t.oid AND pg_get_constraintdef(o.oid) IN ('PRIMARY KEY (name)', 'PRIMARY KEY (name, owner)'))
    )
    SELECT f.fault INTO v_fault FROM faults AS f ORDER BY f.place, f.fault LIMIT 1;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'the schema % is not fit for locks: %', @schema_literal@, v_fault USING ERRCODE = 'HF002';
    END IF;
END $$
