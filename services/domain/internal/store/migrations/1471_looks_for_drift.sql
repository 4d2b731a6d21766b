-- When drivers look whether what runs is still what was deployed, where no observer reports it (R4-11).

-- +goose Up
CREATE TABLE cd_drift_looks (
    organization_id            bigint NOT NULL CONSTRAINT cd_drift_looks_organization REFERENCES cd_organizations (id),
    id                         bigint GENERATED ALWAYS AS IDENTITY,
    application_environment_id bigint NOT NULL,
    due_at                     timestamptz,
    asked_at                   timestamptz,
    preview_id                 bigint,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    updated_at                 timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_drift_looks_are_unique UNIQUE (organization_id, application_environment_id),
    CONSTRAINT cd_drift_looks_subject FOREIGN KEY (organization_id, application_environment_id) REFERENCES cd_application_environments (organization_id, id),
    CONSTRAINT cd_drift_looks_asked_when CHECK ((preview_id IS NULL) = (asked_at IS NULL))
);
CREATE INDEX cd_drift_looks_due ON cd_drift_looks (organization_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX cd_drift_looks_due_in_all ON cd_drift_looks (due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER cd_drift_looks_touch BEFORE UPDATE ON cd_drift_looks FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_drift_looks IS 'One for each application environment that a version set is live in.';
COMMENT ON COLUMN cd_drift_looks.due_at IS 'When its driver is to look next; NULL for not until another rollout has arrived there.';
COMMENT ON COLUMN cd_drift_looks.preview_id IS 'The preview by which its driver looks or has looked last; an answer of another one is too late.';

ALTER TABLE cd_rollout_previews ADD COLUMN drift_of bigint;
COMMENT ON COLUMN cd_rollout_previews.drift_of IS 'The application environment that is looked at for drift; NULL for a preview that is about a rollout.';
CREATE INDEX cd_rollout_previews_of_drift ON cd_rollout_previews (organization_id, created_at) WHERE drift_of IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION cd_look_for_drift() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_drift_looks AS l (organization_id, application_environment_id, due_at)
    SELECT e.organization_id, e.id, now() FROM cd_application_environments e
    WHERE e.organization_id = NEW.organization_id AND e.application_id = NEW.application_id AND e.environment_id = NEW.environment_id
    ON CONFLICT (organization_id, application_environment_id) DO UPDATE SET due_at = excluded.due_at WHERE l.due_at IS NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_look_for_drift IS 'A look follows each deployment, of whichever release of the service.';
CREATE TRIGGER cd_cells_look_for_drift AFTER UPDATE OF live_rollout_environment_id ON cd_cells FOR EACH ROW
    WHEN (NEW.live_rollout_environment_id IS NOT NULL AND NEW.live_rollout_environment_id IS DISTINCT FROM OLD.live_rollout_environment_id)
    EXECUTE FUNCTION cd_look_for_drift();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_drift_looks(until timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_drift_looks WHERE due_at <= until GROUP BY organization_id ORDER BY min(due_at) LIMIT 100;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_drift_looks IS 'The worker is for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_drift_previews(before timestamptz, at_most integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT organization_id, id FROM cd_rollout_previews
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND drift_of IS NOT NULL AND created_at < before
        ORDER BY created_at LIMIT at_most
    ), gone AS (DELETE FROM cd_rollout_previews p USING old WHERE p.organization_id = old.organization_id AND p.id = old.id RETURNING p.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_drift_previews IS 'Previews by which drivers have looked for drift: what they found is kept as a reconciliation.';

-- What is live already, of all organizations.
ALTER TABLE cd_cells NO FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_application_environments NO FORCE ROW LEVEL SECURITY;
INSERT INTO cd_drift_looks (organization_id, application_environment_id, due_at)
SELECT e.organization_id, e.id, now() FROM cd_cells c
JOIN cd_application_environments e ON e.organization_id = c.organization_id AND e.application_id = c.application_id AND e.environment_id = c.environment_id
WHERE c.live_rollout_environment_id IS NOT NULL;
ALTER TABLE cd_application_environments FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_cells FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP FUNCTION cd_forget_drift_previews(timestamptz, integer);
DROP FUNCTION cd_organizations_with_due_drift_looks(timestamptz);
DROP TRIGGER cd_cells_look_for_drift ON cd_cells;
DROP FUNCTION cd_look_for_drift();
DROP INDEX cd_rollout_previews_of_drift;
ALTER TABLE cd_rollout_previews DROP COLUMN drift_of;
DROP TABLE cd_drift_looks;
