-- Cells have the present names of their applications (D57).

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_rename_cells() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_cells SET application_name = NEW.name WHERE organization_id = NEW.organization_id AND application_id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_applications_rename_cells AFTER UPDATE OF name ON cd_applications
    FOR EACH ROW WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION cd_rename_cells();

-- The lock waits for an application that is being renamed, and then has its new name.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_keep_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells AS c (organization_id, application_id, environment_id, application_name, latest_rollout_environment_id, latest_state)
    SELECT NEW.organization_id, a.id, NEW.environment_id, a.name, NEW.id, NEW.state
    FROM cd_rollouts r JOIN cd_applications a ON a.organization_id = r.organization_id AND a.id = r.application_id
    WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
    FOR KEY SHARE OF a
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE
    SET latest_rollout_environment_id = excluded.latest_rollout_environment_id, latest_state = excluded.latest_state,
        application_name = excluded.application_name
    WHERE c.latest_rollout_environment_id IS NULL OR c.latest_rollout_environment_id <= excluded.latest_rollout_environment_id;
    IF NEW.state = 'completed' THEN
        UPDATE cd_cells c SET live_rollout_environment_id = NEW.id, live_version_set_id = r.version_set_id, live_since = NEW.finished_at
        FROM cd_rollouts r
        WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
          AND c.organization_id = NEW.organization_id AND c.application_id = r.application_id AND c.environment_id = NEW.environment_id
          AND (c.live_rollout_environment_id IS NULL OR c.live_rollout_environment_id <= NEW.id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_place_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, shown, worst)
    SELECT a.organization_id, a.id, NEW.environment_id, a.name, NEW.current AND a.archived_at IS NULL, cd_worst_health(a.organization_id, a.id, NEW.environment_id)
    FROM cd_applications a WHERE a.organization_id = NEW.organization_id AND a.id = NEW.application_id
    FOR KEY SHARE OF a
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE
    SET shown = excluded.shown, worst = excluded.worst, application_name = excluded.application_name;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Those of applications that were renamed before, of all organizations.
ALTER TABLE cd_cells NO FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_applications NO FORCE ROW LEVEL SECURITY;
UPDATE cd_cells c SET application_name = a.name FROM cd_applications a
WHERE a.organization_id = c.organization_id AND a.id = c.application_id AND c.application_name <> a.name;
ALTER TABLE cd_applications FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_cells FORCE ROW LEVEL SECURITY;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_keep_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells AS c (organization_id, application_id, environment_id, application_name, latest_rollout_environment_id, latest_state)
    SELECT NEW.organization_id, a.id, NEW.environment_id, a.name, NEW.id, NEW.state
    FROM cd_rollouts r JOIN cd_applications a ON a.organization_id = r.organization_id AND a.id = r.application_id
    WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE
    SET latest_rollout_environment_id = excluded.latest_rollout_environment_id, latest_state = excluded.latest_state
    WHERE c.latest_rollout_environment_id IS NULL OR c.latest_rollout_environment_id <= excluded.latest_rollout_environment_id;
    IF NEW.state = 'completed' THEN
        UPDATE cd_cells c SET live_rollout_environment_id = NEW.id, live_version_set_id = r.version_set_id, live_since = NEW.finished_at
        FROM cd_rollouts r
        WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
          AND c.organization_id = NEW.organization_id AND c.application_id = r.application_id AND c.environment_id = NEW.environment_id
          AND (c.live_rollout_environment_id IS NULL OR c.live_rollout_environment_id <= NEW.id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_place_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, shown, worst)
    SELECT a.organization_id, a.id, NEW.environment_id, a.name, NEW.current AND a.archived_at IS NULL, cd_worst_health(a.organization_id, a.id, NEW.environment_id)
    FROM cd_applications a WHERE a.organization_id = NEW.organization_id AND a.id = NEW.application_id
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE SET shown = excluded.shown, worst = excluded.worst;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER cd_applications_rename_cells ON cd_applications;
DROP FUNCTION cd_rename_cells;
