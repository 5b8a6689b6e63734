-- Refuses a schema in which somebody who is not trusted could run code with the rights of those who
-- use the locks, and tables that differ from those of tables.sql. Trusted are superusers, the owner
-- of the database, the current user, and the roles that this user is a member of, unless it is a
-- superuser, who is a member of all.
DO $$
DECLARE
    v_schema CONSTANT oid := pg_catalog.to_regnamespace(@schema_literal@);
    v_fault  text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    PERFORM set_config('quote_all_identifiers', 'off', true); -- for the names of types
    WITH trusted AS (
        SELECT r.oid FROM pg_roles AS r, pg_roles AS me
         WHERE me.rolname = current_user
           AND (r.oid = me.oid OR r.rolsuper OR NOT me.rolsuper AND pg_has_role(me.oid, r.oid, 'USAGE')
                OR r.oid = (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database()))
    ), tables AS (
        SELECT c.* FROM pg_class AS c WHERE c.relnamespace = v_schema AND c.relname IN ('locks', 'holds', 'places')
    ), expected AS (
        SELECT t.oid, 'column ' || unnest(ARRAY['name text not null "C"', 'token bigint not null', 'tokens integer not null', 'lim integer not null',
                   'kept boolean not null', 'since timestamp with time zone not null', 'expires timestamp with time zone not null',
                   'holder text', 'metadata jsonb', 'channel text']) AS part FROM tables AS t
        UNION ALL
        SELECT t.oid, unnest(CASE t.relname
                   WHEN 'locks' THEN ARRAY['column owner text', 'column last_token bigint not null', 'column others boolean not null', 'primary key (name)', 'storage SET LOGGED']
                   WHEN 'holds' THEN ARRAY['column owner text not null', 'primary key (name, owner)', 'storage SET LOGGED']
                   ELSE ARRAY['column owner text not null', 'primary key (name, owner)', 'storage SET UNLOGGED'] END) FROM tables AS t
    ), found AS (
        SELECT t.oid, CASE WHEN t.relkind <> 'r' OR t.relispartition THEN 'form that is not an ordinary table'
                           WHEN t.relpersistence = 'p' THEN 'storage SET LOGGED' ELSE 'storage SET UNLOGGED' END FROM tables AS t
        UNION ALL
        SELECT t.oid, concat_ws(' ', 'column', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
                   CASE WHEN a.attcollation <> y.typcollation THEN a.attcollation::regcollation::text END)
          FROM tables AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type AS y ON y.oid = a.atttypid
        UNION ALL
        SELECT t.oid, replace(pg_get_constraintdef(o.oid), 'PRIMARY KEY', 'primary key')
          FROM tables AS t JOIN pg_constraint AS o ON t.oid IN (o.conrelid, o.confrelid) AND o.contype <> 'n'
        UNION ALL
        SELECT i.indrelid, 'unique index ' || i.indexrelid::regclass FROM pg_index AS i WHERE i.indisunique AND NOT i.indisprimary
        UNION ALL
        SELECT g.tgrelid, 'trigger ' || g.tgname FROM pg_trigger AS g WHERE NOT g.tgisinternal
        UNION ALL
        SELECT r.ev_class, 'rule ' || r.rulename FROM pg_rewrite AS r
        UNION ALL
        SELECT t.oid, 'row security or an heir' FROM tables AS t WHERE t.relrowsecurity OR EXISTS (SELECT FROM pg_inherits AS i WHERE t.oid IN (i.inhrelid, i.inhparent))
    ), differences AS (
        SELECT m.oid, 'no ' || m.part AS what FROM (TABLE expected EXCEPT TABLE found) AS m
        UNION ALL
        SELECT f.oid, 'the ' || f.part FROM (TABLE found EXCEPT TABLE expected) AS f (oid, part) JOIN tables AS t ON t.oid = f.oid
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
        SELECT 5, format('the table %s has %s: change that, or drop it, if it was made by an older version and no lock is held, or use another schema',
                         d.oid::regclass, string_agg(d.what, ', ' ORDER BY d.what DESC))
          FROM differences AS d GROUP BY d.oid
    )
    SELECT f.fault INTO v_fault FROM faults AS f ORDER BY f.place, f.fault LIMIT 1;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'the schema % is not fit for locks: %', @schema_literal@, v_fault USING ERRCODE = 'HF002';
    END IF;
END $$
