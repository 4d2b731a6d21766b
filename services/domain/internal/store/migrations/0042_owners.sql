-- The policy "across" names the owner of a table. After a restore, or ALTER TABLE … OWNER, the owner may be another account, for whom
-- the policy is not: the functions that look across organizations, which run as the owner, would find nothing, and nobody would be told.
-- So walls are made again where they are not the present owner's (R5, R39).

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_protect(service_role text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t          record;
    f          record;
    wanted     text;
    mine       text;
    -- After a commit PostgreSQL gives back '' for a setting that was local to the transaction, not NULL.
    entered    CONSTANT text := 'NULLIF(current_setting(''lockstep.organization'', true), '''')::bigint';
    -- TG_TYPE bits of pg_trigger.tgtype.
    on_delete  CONSTANT integer := 8;
    on_update  CONSTANT integer := 16;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), service_role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO %I', current_schema(), service_role);
    -- The bootstrap gives the first organization its id, and moves the counter behind it.
    EXECUTE format('GRANT UPDATE ON SEQUENCE cd_organizations_id_seq TO %I', service_role);
    FOR t IN
        SELECT c.oid, c.relname, pg_get_userbyid(c.relowner) AS owner, c.relrowsecurity AND c.relforcerowsecurity
                   AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'own')
                   AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'across' AND p.polroles = ARRAY[c.relowner]) AS walled,
               c.relname LIKE 'cd\_%' AS tenant, c.relname LIKE 'goose\_%' AS bookkeeping,
               -- What a trigger refuses for every row needs no privilege either.
               COALESCE(bit_or(g.tgtype) FILTER (WHERE p.proname = 'cd_refuse'), 0) AS refused
        FROM pg_class c
        LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND NOT g.tgisinternal
        LEFT JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
        GROUP BY c.oid ORDER BY c.relname
    LOOP
        CONTINUE WHEN t.bookkeeping;
        IF t.tenant AND NOT t.walled THEN
            mine := CASE WHEN t.relname = 'cd_organizations' THEN 'id' ELSE 'organization_id' END;
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t.relname);
            EXECUTE format('DROP POLICY IF EXISTS own ON %I', t.relname);
            EXECUTE format('CREATE POLICY own ON %I USING (%I = %s)', t.relname, mine, entered);
            EXECUTE format('DROP POLICY IF EXISTS across ON %I', t.relname);
            EXECUTE format('CREATE POLICY across ON %I FOR SELECT TO %I USING (current_setting(''lockstep.across'', true) = ''on'')', t.relname, t.owner);
        END IF;
        FOREACH wanted IN ARRAY ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'] LOOP
            IF wanted IN ('SELECT', 'INSERT')
                OR wanted = 'UPDATE' AND t.refused & on_update = 0
                OR wanted = 'DELETE' AND t.refused & on_delete = 0 AND NOT t.tenant
            THEN
                EXECUTE format('GRANT %s ON %I TO %I', wanted, t.relname, service_role);
            ELSE
                EXECUTE format('REVOKE %s ON %I FROM %I', wanted, t.relname, service_role);
            END IF;
        END LOOP;
    END LOOP;
    FOR f IN SELECT oid::regprocedure AS signature FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.signature);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, service_role);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_protect(service_role text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t          record;
    f          record;
    wanted     text;
    mine       text;
    -- After a commit PostgreSQL gives back '' for a setting that was local to the transaction, not NULL.
    entered    CONSTANT text := 'NULLIF(current_setting(''lockstep.organization'', true), '''')::bigint';
    -- TG_TYPE bits of pg_trigger.tgtype.
    on_delete  CONSTANT integer := 8;
    on_update  CONSTANT integer := 16;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), service_role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO %I', current_schema(), service_role);
    -- The bootstrap gives the first organization its id, and moves the counter behind it.
    EXECUTE format('GRANT UPDATE ON SEQUENCE cd_organizations_id_seq TO %I', service_role);
    FOR t IN
        SELECT c.oid, c.relname, pg_get_userbyid(c.relowner) AS owner, c.relrowsecurity AND c.relforcerowsecurity AS walled,
               c.relname LIKE 'cd\_%' AS tenant, c.relname LIKE 'goose\_%' AS bookkeeping,
               -- What a trigger refuses for every row needs no privilege either.
               COALESCE(bit_or(g.tgtype) FILTER (WHERE p.proname = 'cd_refuse'), 0) AS refused
        FROM pg_class c
        LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND NOT g.tgisinternal
        LEFT JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
        GROUP BY c.oid ORDER BY c.relname
    LOOP
        CONTINUE WHEN t.bookkeeping;
        IF t.tenant AND NOT t.walled THEN
            mine := CASE WHEN t.relname = 'cd_organizations' THEN 'id' ELSE 'organization_id' END;
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t.relname);
            EXECUTE format('DROP POLICY IF EXISTS own ON %I', t.relname);
            EXECUTE format('CREATE POLICY own ON %I USING (%I = %s)', t.relname, mine, entered);
            EXECUTE format('DROP POLICY IF EXISTS across ON %I', t.relname);
            EXECUTE format('CREATE POLICY across ON %I FOR SELECT TO %I USING (current_setting(''lockstep.across'', true) = ''on'')', t.relname, t.owner);
        END IF;
        FOREACH wanted IN ARRAY ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'] LOOP
            IF wanted IN ('SELECT', 'INSERT')
                OR wanted = 'UPDATE' AND t.refused & on_update = 0
                OR wanted = 'DELETE' AND t.refused & on_delete = 0 AND NOT t.tenant
            THEN
                EXECUTE format('GRANT %s ON %I TO %I', wanted, t.relname, service_role);
            ELSE
                EXECUTE format('REVOKE %s ON %I FROM %I', wanted, t.relname, service_role);
            END IF;
        END LOOP;
    END LOOP;
    FOR f IN SELECT oid::regprocedure AS signature FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.signature);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, service_role);
    END LOOP;
END $$;
-- +goose StatementEnd
