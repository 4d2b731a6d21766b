-- Where each application stands in each environment, kept beside the rollouts: the matrix of ten thousand applications is
-- filtered and shown by it. It is a cache: everything in it can be read off rollouts and their environments.

-- +goose Up
CREATE TABLE cd_cells (
    id                            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id               bigint NOT NULL CONSTRAINT cd_cells_organization REFERENCES cd_organizations (id),
    application_id                bigint NOT NULL,
    environment_id                bigint NOT NULL,
    latest_rollout_environment_id bigint NOT NULL,
    latest_state                  smallint NOT NULL CONSTRAINT cd_cells_state_is_known CHECK (latest_state BETWEEN 0 AND 5),
    live_rollout_environment_id   bigint,
    live_version_set_id           bigint,
    live_since                    timestamptz,
    created_at                    timestamptz NOT NULL DEFAULT now(),
    updated_at                    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_cells_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_cells_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_cells_latest FOREIGN KEY (organization_id, latest_rollout_environment_id) REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_cells_live FOREIGN KEY (organization_id, live_rollout_environment_id) REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_cells_live_version_set FOREIGN KEY (organization_id, application_id, live_version_set_id) REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_cells_live_is_whole CHECK ((live_rollout_environment_id IS NULL) = (live_version_set_id IS NULL) AND (live_version_set_id IS NULL) = (live_since IS NULL)),
    CONSTRAINT cd_cells_is_unique UNIQUE (organization_id, application_id, environment_id)
);
COMMENT ON COLUMN cd_cells.latest_rollout_environment_id IS 'The stop of the newest rollout that goes there, and latest_state its state.';
COMMENT ON COLUMN cd_cells.live_rollout_environment_id IS 'The stop of the newest rollout that completed there; NULL before the first.';
CREATE INDEX cd_cells_by_state ON cd_cells (organization_id, latest_state, environment_id, application_id);
CREATE INDEX cd_cells_by_latest ON cd_cells (organization_id, latest_rollout_environment_id);
-- What is degraded is found without reading what is not.
CREATE INDEX cd_service_environment_healths_by_health ON cd_service_environment_healths (organization_id, health, environment_id, service_id);
CREATE INDEX cd_environment_driver_bindings_by_driver ON cd_environment_driver_bindings (organization_id, driver_ref, environment_id);
CREATE TRIGGER cd_cells_touch BEFORE UPDATE ON cd_cells FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- Behind the walls of the tables the owner sees nothing, unless it says that it looks across organizations.
SELECT set_config('lockstep.across', 'on', true);
INSERT INTO cd_cells (organization_id, application_id, environment_id, latest_rollout_environment_id, latest_state, live_rollout_environment_id, live_version_set_id, live_since)
SELECT l.organization_id, l.application_id, l.environment_id, l.id, l.state, v.id, v.version_set_id, v.finished_at
FROM (
    SELECT DISTINCT ON (e.organization_id, r.application_id, e.environment_id) e.organization_id, r.application_id, e.environment_id, e.id, e.state
    FROM cd_rollout_environments e JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
    ORDER BY e.organization_id, r.application_id, e.environment_id, e.id DESC
) l
LEFT JOIN (
    SELECT DISTINCT ON (e.organization_id, r.application_id, e.environment_id) e.organization_id, r.application_id, e.environment_id, e.id, r.version_set_id, e.finished_at
    FROM cd_rollout_environments e JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
    WHERE e.state = 3
    ORDER BY e.organization_id, r.application_id, e.environment_id, e.id DESC
) v ON v.organization_id = l.organization_id AND v.application_id = l.application_id AND v.environment_id = l.environment_id;
SELECT set_config('lockstep.across', '', true);

-- An application's rollouts follow each other (R14), so a newer stop has the higher number. Words about an older one may
-- come late, and change nothing that a newer one has said.
-- +goose StatementBegin
CREATE FUNCTION cd_keep_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells AS c (organization_id, application_id, environment_id, latest_rollout_environment_id, latest_state)
    SELECT NEW.organization_id, r.application_id, NEW.environment_id, NEW.id, NEW.state
    FROM cd_rollouts r WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE
    SET latest_rollout_environment_id = excluded.latest_rollout_environment_id, latest_state = excluded.latest_state
    WHERE c.latest_rollout_environment_id <= excluded.latest_rollout_environment_id;
    IF NEW.state = 3 THEN
        UPDATE cd_cells c SET live_rollout_environment_id = NEW.id, live_version_set_id = r.version_set_id, live_since = NEW.finished_at
        FROM cd_rollouts r
        WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id
          AND c.organization_id = NEW.organization_id AND c.application_id = r.application_id AND c.environment_id = NEW.environment_id
          AND (c.live_rollout_environment_id IS NULL OR c.live_rollout_environment_id <= NEW.id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_rollout_environments_keep_cell AFTER INSERT OR UPDATE OF state ON cd_rollout_environments
    FOR EACH ROW EXECUTE FUNCTION cd_keep_cell();

-- +goose Down
DROP TRIGGER cd_rollout_environments_keep_cell ON cd_rollout_environments;
DROP FUNCTION cd_keep_cell();
DROP INDEX cd_environment_driver_bindings_by_driver;
DROP INDEX cd_service_environment_healths_by_health;
DROP TABLE cd_cells;
