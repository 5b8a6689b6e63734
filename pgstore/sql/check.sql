-- Refuses a schema in which somebody who is not trusted could run code with the rights of those who
-- use the locks, and tables with other columns than those of tables.sql, or that may hide or forget
-- rows. Trusted are superusers, the owner of the database, the current user, and the roles that
-- this user is a member of, unless it is a superuser, who is a member of all.
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
    ), expected (name, columns) AS (VALUES
        ('locks', 'name text, owner text, expires timestamp with time zone, token bigint, last_token bigint, since timestamp with time zone, '
                  'tokens integer, lim integer, kept boolean, others boolean, holder text, metadata jsonb, channel text'),
        ('holds', 'name text, owner text, token bigint, tokens integer, lim integer, kept boolean, '
                  'since timestamp with time zone, expires timestamp with time zone, holder text, metadata jsonb, channel text')
    ), tables AS (
        SELECT c.oid, replace(c.relname, 'places', 'holds') AS form, c.relkind, c.relpersistence = CASE c.relname WHEN 'places' THEN 'u' ELSE 'p' END AND NOT c.relrowsecurity AS plain,
               string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) AS columns
          FROM pg_class AS c LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = v_schema AND c.relname IN ('locks', 'holds', 'places') GROUP BY c.oid, c.relname, c.relkind, c.relpersistence, c.relrowsecurity -- as 13 wants it
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
        SELECT 5, format('the table %s has the columns %s in the place of %s: drop it, if no lock is held, or use another schema', t.oid::regclass, t.columns, e.columns)
          FROM tables AS t JOIN expected AS e ON e.name = t.form WHERE t.relkind <> 'r' OR t.columns IS DISTINCT FROM e.columns
        UNION ALL
        SELECT 6, format('the table %s has a trigger or row security, or another persistence than Migrate gives it: undo that, or drop it, if no lock is held', t.oid::regclass)
          FROM tables AS t WHERE NOT t.plain OR EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.oid AND NOT g.tgisinternal)
    )
    SELECT f.fault INTO v_fault FROM faults AS f ORDER BY f.place, f.fault LIMIT 1;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'the schema % is not fit for locks: %', @schema_literal@, v_fault USING ERRCODE = 'HF002';
    END IF;
END $$
