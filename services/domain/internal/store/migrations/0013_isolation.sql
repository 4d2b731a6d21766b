-- Organizations are walled off from each other in the database itself, and the service works as a role that can neither
-- change nor remove what is append-only (R5, R12, R13, R39).

-- +goose Up
-- With the application alone, a row of another organization's application would be refused by this index before its
-- foreign key is looked at, which tells that there is an active rollout.
DROP INDEX cd_rollouts_one_active_per_application;
CREATE UNIQUE INDEX cd_rollouts_one_active_per_application ON cd_rollouts (organization_id, application_id) WHERE state IN (0, 1, 2);

-- +goose StatementBegin
CREATE FUNCTION cd_protect(service_role text) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION cd_protect(text) IS 'Run by the owner after every migration, so that no later table can be forgotten: walls, and the privileges of the role that the service works as.';

-- The only ways to look across organizations, and they give away nothing but organizations. They run as the owner, who
-- is behind the walls as well, but for whom the policy "across" opens them.
-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_source(key text) RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT DISTINCT organization_id FROM cd_artifact_sources WHERE match_key = key ORDER BY organization_id
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_source(text) IS 'An artifact belongs to everybody who points at it (R48).';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_handoffs(at timestamptz) RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT organization_id FROM cd_handoffs WHERE state = 0 AND due_at <= at GROUP BY organization_id ORDER BY min(due_at)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_handoffs(timestamptz) IS 'There is one dispatcher for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_rollbacks(at timestamptz) RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT organization_id FROM cd_automatic_rollbacks WHERE state = 0 AND due_at <= at GROUP BY organization_id ORDER BY min(due_at)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_rollbacks(timestamptz) IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_with_due_rollbacks(timestamptz);
DROP FUNCTION cd_organizations_with_due_handoffs(timestamptz);
DROP FUNCTION cd_organizations_with_source(text);
DROP FUNCTION cd_protect(text);
-- +goose StatementBegin
DO $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = current_schema() LOOP
        EXECUTE format('DROP POLICY %I ON %I', p.policyname, p.tablename);
        EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', p.tablename);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP INDEX cd_rollouts_one_active_per_application;
CREATE UNIQUE INDEX cd_rollouts_one_active_per_application ON cd_rollouts (application_id) WHERE state IN (0, 1, 2);
