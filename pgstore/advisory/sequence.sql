-- Refuses a sequence of tokens that somebody else can set back, or that does not rise.
DO $holdfast$
DECLARE
    v_sequence CONSTANT regclass := @sequence@::regclass;
    v_schema   CONSTANT oid := (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = v_sequence::oid);
    v_fault    text;
BEGIN
    PERFORM pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true);
    SELECT CASE WHEN s.seqrelid IS NULL THEN 'is no sequence: name another'
                WHEN s.seqcycle OR s.seqincrement < 1 THEN format('does not rise: to mend it, ALTER SEQUENCE %s INCREMENT 1 NO CYCLE', v_sequence)
                WHEN c.relowner NOT IN (@trusted@)
                THEN format('belongs to %I, who can set it back: to mend it, ALTER SEQUENCE %s OWNER TO %I', c.relowner::regrole::text, v_sequence, current_user)
           END INTO v_fault
      FROM pg_class AS c LEFT JOIN pg_sequence AS s ON s.seqrelid = c.oid WHERE c.oid = v_sequence;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'the sequence of tokens % %', v_sequence, v_fault USING ERRCODE = 'HF004';
    END IF;
END $holdfast$
