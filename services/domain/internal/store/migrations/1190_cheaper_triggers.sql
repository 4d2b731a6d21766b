-- What each row of the journals costs in triggers: what is pinned is compared as rows are, and statuses for forges are only looked for where
-- there are any (D50, D64).

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_changed_pins() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after  jsonb := to_jsonb(NEW);
    pinned text;
BEGIN
    FOREACH pinned IN ARRAY TG_ARGV LOOP
        IF before -> pinned IS DISTINCT FROM after -> pinned THEN
            RAISE EXCEPTION '%.% is pinned: it never changes', TG_TABLE_NAME, pinned
                USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME, COLUMN = pinned, CONSTRAINT = TG_NAME;
        END IF;
    END LOOP;
    RETURN NEW;
END $$;
-- +goose StatementEnd

DROP TRIGGER cd_deployments_pins_are_immutable ON cd_deployments;
CREATE TRIGGER cd_deployments_pins_are_immutable BEFORE UPDATE ON cd_deployments FOR EACH ROW
    WHEN ((OLD.id, OLD.organization_id, OLD.rollout_environment_id, OLD.service_id, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.organization_id, NEW.rollout_environment_id, NEW.service_id, NEW.created_at))
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_environment_id', 'service_id', 'created_at');

DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    WHEN ((OLD.id, OLD.organization_id, OLD.rollout_id, OLD.environment_id, OLD.position, OLD.driver_binding_id, OLD.driver_digest,
            OLD.previous_version_set_id, OLD.weights, OLD.skips_weights, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.organization_id, NEW.rollout_id, NEW.environment_id, NEW.position, NEW.driver_binding_id, NEW.driver_digest,
            NEW.previous_version_set_id, NEW.weights, NEW.skips_weights, NEW.created_at))
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id',
        'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'created_at');

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM cd_forge_mirrors m WHERE m.organization_id = NEW.organization_id AND m.enabled) THEN
        PERFORM cd_mark_forge_subject(r.organization_id, r.application_id, s.id)
            FROM cd_rollouts r, unnest(ARRAY[r.version_set_id, CASE WHEN NEW.state = 'completed' THEN NEW.previous_version_set_id END]) AS s (id)
            WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id AND s.id IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_mark_forge_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM cd_mark_forge_subject(r.organization_id, r.application_id, s.id)
        FROM cd_rollouts r, unnest(ARRAY[r.version_set_id, CASE WHEN NEW.state = 'completed' THEN NEW.previous_version_set_id END]) AS s (id)
        WHERE r.organization_id = NEW.organization_id AND r.id = NEW.rollout_id AND s.id IS NOT NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd

DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id',
        'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'created_at');

DROP TRIGGER cd_deployments_pins_are_immutable ON cd_deployments;
CREATE TRIGGER cd_deployments_pins_are_immutable BEFORE UPDATE ON cd_deployments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_environment_id', 'service_id', 'created_at');

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_refuse_changed_pins() RETURNS trigger LANGUAGE plpgsql AS $$
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
