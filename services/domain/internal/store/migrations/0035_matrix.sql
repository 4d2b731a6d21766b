-- The matrix of ten thousand applications is filtered by indexes that have the applications in order of name below every
-- answer a filter can have, so that a page costs what is on it. So there is a cell for every application environment, before
-- its first rollout too, with the application's name, which never changes, and the worst health of its services. And what is
-- part of a name is found by the ends of names: each that begins with it.

-- +goose Up
ALTER TABLE cd_cells
    ALTER COLUMN latest_rollout_environment_id DROP NOT NULL,
    ALTER COLUMN latest_state DROP NOT NULL,
    ADD COLUMN application_name text,
    ADD COLUMN shown boolean NOT NULL DEFAULT false,
    ADD COLUMN worst smallint NOT NULL DEFAULT -1 CONSTRAINT cd_cells_worst_is_known CHECK (worst BETWEEN -1 AND 3),
    ADD COLUMN standing smallint NOT NULL GENERATED ALWAYS AS (COALESCE(latest_state, (-1)::smallint)) STORED,
    ADD CONSTRAINT cd_cells_latest_is_whole CHECK ((latest_rollout_environment_id IS NULL) = (latest_state IS NULL));
COMMENT ON COLUMN cd_cells.application_name IS 'The name of the application, for the order of the matrix.';
COMMENT ON COLUMN cd_cells.shown IS 'The application lives, and its latest pipeline goes there.';
COMMENT ON COLUMN cd_cells.worst IS 'The worst health of the application''s services there: -1 never seen, 0 healthy, 1 unknown, 2 progressing, 3 degraded.';
COMMENT ON COLUMN cd_cells.standing IS 'latest_state, and -1 before the first rollout, so that an index finds that too.';

-- +goose StatementBegin
CREATE FUNCTION cd_worst_health(organization bigint, application bigint, environment bigint) RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT COALESCE(max(CASE h.health WHEN 3 THEN 3 WHEN 2 THEN 2 WHEN 0 THEN 1 ELSE 0 END), -1)::smallint
    FROM cd_services s
    JOIN cd_service_environment_healths h ON h.organization_id = s.organization_id AND h.service_id = s.id AND h.environment_id = environment
    WHERE s.organization_id = organization AND s.application_id = application
$$;
-- +goose StatementEnd

-- Behind the walls of the tables the owner sees nothing, unless it says that it looks across organizations; what it changes
-- has to be of one that it has entered.
-- +goose StatementBegin
DO $$
DECLARE
    o bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    FOR o IN SELECT id FROM cd_organizations LOOP
        PERFORM set_config('lockstep.organization', o::text, true);
        INSERT INTO cd_cells (organization_id, application_id, environment_id)
        SELECT e.organization_id, e.application_id, e.environment_id FROM cd_application_environments e WHERE e.organization_id = o
        ON CONFLICT (organization_id, application_id, environment_id) DO NOTHING;
        UPDATE cd_cells c SET application_name = a.name, worst = cd_worst_health(o, c.application_id, c.environment_id),
            shown = a.archived_at IS NULL AND EXISTS (SELECT FROM cd_application_environments e
                WHERE e.organization_id = o AND e.application_id = c.application_id AND e.environment_id = c.environment_id AND e.current)
        FROM cd_applications a WHERE c.organization_id = o AND a.organization_id = o AND a.id = c.application_id;
    END LOOP;
    PERFORM set_config('lockstep.organization', '', true), set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
ALTER TABLE cd_cells ALTER COLUMN application_name SET NOT NULL;
DROP INDEX cd_cells_by_state;
DROP INDEX cd_service_environment_healths_by_health;
CREATE INDEX cd_cells_by_standing ON cd_cells (organization_id, standing, worst, application_name) WHERE shown;
CREATE INDEX cd_cells_by_environment ON cd_cells (organization_id, environment_id, standing, worst, application_name) WHERE shown;

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
CREATE TRIGGER cd_application_environments_place_cell AFTER INSERT OR UPDATE OF current ON cd_application_environments
    FOR EACH ROW EXECUTE FUNCTION cd_place_cell();

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
CREATE TRIGGER cd_applications_show_cells AFTER UPDATE OF archived_at ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_show_cells();

-- Most words about a health say what was known: those touch no cell, and wait for nobody who does.
-- +goose StatementBegin
CREATE FUNCTION cd_keep_worst_health() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_cells c SET worst = w.worst
    FROM cd_services s, LATERAL (SELECT cd_worst_health(s.organization_id, s.application_id, NEW.environment_id) AS worst) w
    WHERE s.organization_id = NEW.organization_id AND s.id = NEW.service_id
      AND c.organization_id = s.organization_id AND c.application_id = s.application_id AND c.environment_id = NEW.environment_id
      AND c.worst <> w.worst;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_service_environment_healths_keep_worst AFTER INSERT OR UPDATE OF health ON cd_service_environment_healths
    FOR EACH ROW EXECUTE FUNCTION cd_keep_worst_health();

CREATE TABLE cd_application_name_ends (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_application_name_ends_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    name_end        text COLLATE "C" NOT NULL CONSTRAINT cd_application_name_ends_are_not_empty CHECK (name_end <> ''),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_application_name_ends_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    -- What is read by: an end that begins with a text is between that text and the next one in the order of bytes.
    CONSTRAINT cd_application_name_ends_are_unique UNIQUE (organization_id, name_end, application_id)
);
COMMENT ON TABLE cd_application_name_ends IS 'The name of each application in lower case from each of its letters to its end: shop, hop, op, p.';
-- +goose StatementBegin
CREATE FUNCTION cd_keep_name_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_application_name_ends (organization_id, application_id, name_end)
    SELECT NEW.organization_id, NEW.id, substr(lower(NEW.name), n) FROM generate_series(1, length(NEW.name)) n;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_applications_keep_name_ends AFTER INSERT ON cd_applications FOR EACH ROW EXECUTE FUNCTION cd_keep_name_ends();
CREATE TRIGGER cd_application_name_ends_are_append_only BEFORE UPDATE OR DELETE ON cd_application_name_ends FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_application_name_ends_are_kept BEFORE TRUNCATE ON cd_application_name_ends EXECUTE FUNCTION cd_refuse();
SELECT set_config('lockstep.across', 'on', true);
INSERT INTO cd_application_name_ends (organization_id, application_id, name_end)
SELECT a.organization_id, a.id, substr(lower(a.name), n) FROM cd_applications a, generate_series(1, length(a.name)) n;
SELECT set_config('lockstep.across', '', true);
-- Two caches go by it.
CREATE TRIGGER cd_applications_name_is_immutable BEFORE UPDATE ON cd_applications FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('name');

-- +goose Down
DROP TRIGGER cd_applications_name_is_immutable ON cd_applications;
DROP TRIGGER cd_applications_keep_name_ends ON cd_applications;
DROP FUNCTION cd_keep_name_ends();
DROP TABLE cd_application_name_ends;
DROP TRIGGER cd_service_environment_healths_keep_worst ON cd_service_environment_healths;
DROP FUNCTION cd_keep_worst_health();
DROP TRIGGER cd_applications_show_cells ON cd_applications;
DROP FUNCTION cd_show_cells();
DROP TRIGGER cd_application_environments_place_cell ON cd_application_environments;
DROP FUNCTION cd_place_cell();
DROP FUNCTION cd_worst_health(bigint, bigint, bigint);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_keep_cell() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP INDEX cd_cells_by_environment;
DROP INDEX cd_cells_by_standing;
CREATE INDEX cd_cells_by_state ON cd_cells (organization_id, latest_state, environment_id, application_id);
CREATE INDEX cd_service_environment_healths_by_health ON cd_service_environment_healths (organization_id, health, environment_id, service_id);
-- +goose StatementBegin
DO $$
DECLARE
    o bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    FOR o IN SELECT id FROM cd_organizations LOOP
        PERFORM set_config('lockstep.organization', o::text, true);
        DELETE FROM cd_cells WHERE organization_id = o AND latest_rollout_environment_id IS NULL;
    END LOOP;
    PERFORM set_config('lockstep.organization', '', true), set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
ALTER TABLE cd_cells
    DROP CONSTRAINT cd_cells_latest_is_whole,
    DROP COLUMN standing,
    DROP COLUMN worst,
    DROP COLUMN shown,
    DROP COLUMN application_name,
    ALTER COLUMN latest_state SET NOT NULL,
    ALTER COLUMN latest_rollout_environment_id SET NOT NULL;
