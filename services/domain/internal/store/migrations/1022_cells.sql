-- The matrix: how each application is in each environment.

-- +goose Up
-- +goose StatementBegin
-- An application's rollouts follow each other, so a newer stop has the higher number. Words about an older one may
-- come late, and change nothing that a newer one has said.
CREATE FUNCTION cd_keep_cell() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE FUNCTION cd_place_cell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, shown, worst)
    SELECT a.organization_id, a.id, NEW.environment_id, a.name, NEW.current AND a.archived_at IS NULL, cd_worst_health(a.organization_id, a.id, NEW.environment_id)
    FROM cd_applications a WHERE a.organization_id = NEW.organization_id AND a.id = NEW.application_id
    ON CONFLICT (organization_id, application_id, environment_id) DO UPDATE SET shown = excluded.shown, worst = excluded.worst;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cd_show_cells() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_cells c SET shown = NEW.archived_at IS NULL AND e.current
    FROM cd_application_environments e
    WHERE c.organization_id = NEW.organization_id AND c.application_id = NEW.id
      AND e.organization_id = c.organization_id AND e.application_id = c.application_id AND e.environment_id = c.environment_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TABLE cd_service_environment_healths (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_service_environment_healths_organization REFERENCES cd_organizations (id),
    service_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    health          text NOT NULL,
    observed_at     timestamptz NOT NULL,
    reason          text NOT NULL DEFAULT '',
    since           timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_service_environment_healths_is_unique UNIQUE (organization_id, service_id, environment_id),
    CONSTRAINT cd_service_environment_healths_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_service_environment_healths_service FOREIGN KEY (organization_id, service_id) REFERENCES cd_services (organization_id, id),
    CONSTRAINT cd_service_environment_healths_health_is_known CHECK (health IN ('unknown', 'healthy', 'progressing', 'degraded')),
    CONSTRAINT cd_service_environment_healths_since_is_before CHECK (since <= observed_at)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON COLUMN cd_service_environment_healths.since IS 'The first observation in a row with this health: what the clock of a policy counts from.';
CREATE TRIGGER cd_service_environment_healths_touch BEFORE UPDATE ON cd_service_environment_healths FOR EACH ROW
    EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_cells (
    id                            bigint GENERATED ALWAYS AS IDENTITY,
    organization_id               bigint NOT NULL CONSTRAINT cd_cells_organization REFERENCES cd_organizations (id),
    application_id                bigint NOT NULL,
    environment_id                bigint NOT NULL,
    latest_rollout_environment_id bigint,
    latest_state                  text,
    live_rollout_environment_id   bigint,
    live_version_set_id           bigint,
    live_since                    timestamptz,
    application_name              text NOT NULL,
    shown                         boolean NOT NULL DEFAULT false,
    worst                         text NOT NULL DEFAULT '',
    standing                      text NOT NULL GENERATED ALWAYS AS (COALESCE(latest_state, '')) STORED,
    created_at                    timestamptz NOT NULL DEFAULT now(),
    updated_at                    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_cells_is_unique UNIQUE (organization_id, application_id, environment_id),
    CONSTRAINT cd_cells_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_cells_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_cells_latest FOREIGN KEY (organization_id, latest_rollout_environment_id)
        REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_cells_live FOREIGN KEY (organization_id, live_rollout_environment_id)
        REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_cells_live_version_set FOREIGN KEY (organization_id, application_id, live_version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_cells_latest_is_whole CHECK ((latest_rollout_environment_id IS NULL) = (latest_state IS NULL)),
    CONSTRAINT cd_cells_live_is_whole CHECK ((live_rollout_environment_id IS NULL) = (live_version_set_id IS NULL)
        AND (live_version_set_id IS NULL) = (live_since IS NULL)),
    CONSTRAINT cd_cells_state_is_known CHECK (latest_state IN ('pending', 'in_progress', 'paused', 'completed', 'failed', 'cancelled')),
    CONSTRAINT cd_cells_worst_is_known CHECK (worst IN ('', 'unknown', 'healthy', 'progressing', 'degraded'))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON COLUMN cd_cells.application_name IS 'The name of the application, for the order of the matrix.';
COMMENT ON COLUMN cd_cells.latest_rollout_environment_id IS 'The stop of the newest rollout that goes there, and latest_state its state.';
COMMENT ON COLUMN cd_cells.live_rollout_environment_id IS 'The stop of the newest rollout that completed there; NULL before the first.';
COMMENT ON COLUMN cd_cells.shown IS 'The application lives, and its latest pipeline goes there.';
COMMENT ON COLUMN cd_cells.standing IS 'latest_state, and empty before the first rollout, so that an index finds that too.';
COMMENT ON COLUMN cd_cells.worst IS 'The worst health of the application''s services there, from healthy over unknown and progressing to degraded; empty before any was seen.';
CREATE INDEX cd_cells_by_environment ON cd_cells (organization_id, environment_id, standing, worst, application_name) WHERE shown;
CREATE INDEX cd_cells_by_latest ON cd_cells (organization_id, latest_rollout_environment_id);
CREATE INDEX cd_cells_by_live ON cd_cells (organization_id, live_version_set_id) WHERE live_version_set_id IS NOT NULL;
CREATE INDEX cd_cells_by_standing ON cd_cells (organization_id, standing, worst, application_name) WHERE shown;
CREATE TRIGGER cd_cells_touch BEFORE UPDATE ON cd_cells FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
-- Most words about a health say what was known: those touch no cell, and wait for nobody who does.
CREATE FUNCTION cd_keep_worst_health() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    cell cd_cells;
BEGIN
    SELECT c.* INTO cell
    FROM cd_services s
    JOIN cd_cells c ON c.organization_id = s.organization_id AND c.application_id = s.application_id AND c.environment_id = NEW.environment_id
    WHERE s.organization_id = NEW.organization_id AND s.id = NEW.service_id
    FOR NO KEY UPDATE OF c;
    IF FOUND THEN
        UPDATE cd_cells c SET worst = w.worst
        FROM (SELECT cd_worst_health(cell.organization_id, cell.application_id, cell.environment_id) AS worst) w
        WHERE c.id = cell.id AND c.worst <> w.worst;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER cd_applications_show_cells AFTER UPDATE OF archived_at ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_show_cells();
CREATE TRIGGER cd_application_environments_place_cell AFTER INSERT
    OR UPDATE OF current ON cd_application_environments FOR EACH ROW EXECUTE FUNCTION cd_place_cell();
CREATE TRIGGER cd_rollout_environments_keep_cell AFTER INSERT
    OR UPDATE OF state ON cd_rollout_environments FOR EACH ROW EXECUTE FUNCTION cd_keep_cell();
CREATE TRIGGER cd_service_environment_healths_begin_worst AFTER INSERT ON cd_service_environment_healths FOR EACH ROW
    EXECUTE FUNCTION cd_keep_worst_health();
CREATE TRIGGER cd_service_environment_healths_keep_worst AFTER UPDATE OF health ON cd_service_environment_healths FOR EACH ROW
    WHEN (old.health <> new.health) EXECUTE FUNCTION cd_keep_worst_health();

-- +goose StatementBegin
CREATE FUNCTION cd_worst_health(organization bigint, application bigint, environment bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT COALESCE((ARRAY['healthy', 'unknown', 'progressing', 'degraded'])[
        max(CASE h.health WHEN 'degraded' THEN 4 WHEN 'progressing' THEN 3 WHEN 'unknown' THEN 2 ELSE 1 END)], '')
    FROM cd_services s
    JOIN cd_service_environment_healths h ON h.organization_id = s.organization_id AND h.service_id = s.id AND h.environment_id = environment
    WHERE s.organization_id = organization AND s.application_id = application
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cd_worst_health;
DROP TRIGGER cd_applications_show_cells ON cd_applications;
DROP TRIGGER cd_application_environments_place_cell ON cd_application_environments;
DROP TRIGGER cd_rollout_environments_keep_cell ON cd_rollout_environments;
DROP TRIGGER cd_service_environment_healths_begin_worst ON cd_service_environment_healths;
DROP TRIGGER cd_service_environment_healths_keep_worst ON cd_service_environment_healths;
DROP TABLE cd_cells;
DROP TABLE cd_service_environment_healths;
DROP FUNCTION cd_show_cells;
DROP FUNCTION cd_place_cell;
DROP FUNCTION cd_keep_worst_health;
DROP FUNCTION cd_keep_cell;
