-- Refuses what is not a table, and whatever belongs to somebody who could have it
-- run code with the rights of those who use the locks: by triggers, rules and
-- functions. Trusted are the owners of the schema and of the database, superusers,
-- oneself, and, unless one is a superuser, every role that one is a member of.
DO $holdfast$
DECLARE
    v_schema CONSTANT oid := pg_catalog.to_regnamespace(@schema_literal@::text);
    v_found  record;
BEGIN
    PERFORM pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true);
    FOR v_found IN
        WITH trusted AS (
            @trusted@
            UNION ALL
            -- If there is nothing to be done, also the owner of the table, if the owner
            -- of the schema lets it create there, and not just everybody.
            SELECT c.relowner FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
             WHERE @settled@ AND n.oid = v_schema AND c.relname::text = @table_name@::text
               AND (SELECT coalesce(bool_or(a.grantee = c.relowner), false) OR NOT coalesce(bool_or(a.grantee = 0), false)
                      FROM aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a WHERE a.privilege_type = 'CREATE')
        )
        SELECT 1 AS place, format('%s is not an ordinary table', c.oid::regclass) AS problem,
               'give Options.Table, or the parameter table of the URL, another name' AS cure
          FROM pg_class AS c
         WHERE c.relnamespace = v_schema AND c.relname::text IN (@table_name@::text, @table_name@::text || '_migrations', @table_name@::text || '_waiters', @table_name@::text || '_shares')
           AND (c.relkind <> 'r' OR c.relispartition)
        UNION ALL
        SELECT 2, format('the table %s belongs to %I, whose triggers would run with the rights of everybody who locks', c.oid::regclass, c.relowner::regrole::text),
               format('migrate as %I, if that user is to be trusted; else look at the table, and rename or drop it', c.relowner::regrole::text)
          FROM pg_class AS c
         WHERE c.relnamespace = v_schema AND c.relname::text IN (@table_name@::text, @table_name@::text || '_migrations', @table_name@::text || '_waiters', @table_name@::text || '_shares')
           AND c.relowner NOT IN (SELECT oid FROM trusted)
        UNION ALL
        SELECT 3, format('the function %s belongs to %I, and would run with the rights of those who call it', p.oid::regprocedure, p.proowner::regrole::text),
               format('DROP FUNCTION %s', p.oid::regprocedure)
          FROM pg_proc AS p
         WHERE p.oid IN (@signatures@)
           AND p.proowner NOT IN (SELECT oid FROM trusted)
         ORDER BY 1
    LOOP
        RAISE EXCEPTION '%: to mend it, %', v_found.problem, v_found.cure USING ERRCODE = 'HF004';
    END LOOP;
END $holdfast$
