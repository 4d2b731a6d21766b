-- What every table uses: rows that are never changed or removed, and the walls between organizations.

-- +goose Up
-- +goose StatementBegin
DO $$ BEGIN
    IF to_regclass('cd_organizations') IS NOT NULL THEN
        RAISE EXCEPTION 'these tables were made by a build from before version 0.1.0, whose migrations no longer exist: found cd_organizations; expected an empty schema'
            USING HINT = 'Export what must be kept with that build (lockstep journal export), then start with another schema or database.';
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_touch IS 'Keeps updated_at.';

-- +goose StatementBegin
CREATE FUNCTION cd_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows never change', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse IS 'Guards tables that are append-only or immutable, and rows that are the audit trail.';

-- +goose StatementBegin
CREATE FUNCTION cd_refuse_changed_pins() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    pinned text;
BEGIN
    FOREACH pinned IN ARRAY TG_ARGV LOOP
        IF to_jsonb(OLD) -> pinned IS DISTINCT FROM to_jsonb(NEW) -> pinned THEN
            RAISE EXCEPTION '%.% is pinned: it never changes', TG_TABLE_NAME, pinned
                USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, COLUMN = pinned, CONSTRAINT = TG_NAME;
        END IF;
    END LOOP;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_changed_pins IS 'Guards the columns named in its arguments against any change.';

-- +goose StatementBegin
CREATE FUNCTION cd_refuse_change_of_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'row % of % has ended in state %: its state never changes again', OLD.id, TG_TABLE_NAME, OLD.state
        USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, COLUMN = 'state', CONSTRAINT = TG_NAME;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_change_of_ended IS 'A state that is an end never changes: an update that would change it fails.';

-- +goose StatementBegin
CREATE FUNCTION cd_refuse_unknown_controls() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    control text;
BEGIN
    SELECT CASE
        WHEN TG_TABLE_NAME = 'cd_rollout_transitions'
            AND EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = NEW.organization_id AND r.id = (to_jsonb(NEW) ->> 'rollout_id')::bigint AND r.passages)
            THEN 'the conditions that the rollout has pinned'
        WHEN EXISTS (SELECT FROM cd_policy_sets s
            JOIN cd_policy_versions v ON v.organization_id = s.organization_id AND v.policy_set_id = s.id AND v.version = s.version
            WHERE s.organization_id = NEW.organization_id AND v.mode = 'enforce') THEN 'policies'
        WHEN EXISTS (SELECT FROM cd_environment_checks c WHERE c.organization_id = NEW.organization_id AND c.checks <> '{}')
            THEN 'checks of environments'
        WHEN EXISTS (SELECT FROM cd_freezes f WHERE f.organization_id = NEW.organization_id AND f.ended_at IS NULL AND f.ends_at > now())
            THEN 'freezes'
        WHEN EXISTS (SELECT FROM cd_vetoes v WHERE v.organization_id = NEW.organization_id AND v.lifted_at IS NULL) THEN 'vetoes'
        WHEN EXISTS (SELECT FROM cd_environment_pins p WHERE p.organization_id = NEW.organization_id AND p.pinned) THEN 'pins'
        WHEN TG_TABLE_NAME = 'cd_rollouts' AND EXISTS (SELECT FROM cd_application_flow_definitions d
            WHERE d.organization_id = NEW.organization_id AND d.id = (to_jsonb(NEW) ->> 'flow_definition_id')::bigint
            AND jsonb_path_exists(d.definition::jsonb, '$.**.checks')) THEN 'checks of pipelines'
    END INTO control;
    IF control IS NOT NULL THEN
        -- The class of the code is that of what passes: the event is delivered again, and the caller may ask again.
        RAISE EXCEPTION 'this replica belongs to a release that does not know all controls, and found %; expected a replica of the present release', control
            USING ERRCODE = 'lock_not_available', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_refuse_unknown_controls IS 'A release with a new control raises the number that EnterOrganization sets, and replaces the triggers by ones that expect it.';

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
COMMENT ON FUNCTION cd_protect IS 'Run by the owner after every migration, so that no later table can be forgotten: walls, and the privileges of the role that the service works as.';

-- +goose Down
DROP FUNCTION cd_protect;
DROP FUNCTION cd_refuse_unknown_controls;
DROP FUNCTION cd_refuse_change_of_ended;
DROP FUNCTION cd_refuse_changed_pins;
DROP FUNCTION cd_refuse;
DROP FUNCTION cd_touch;
