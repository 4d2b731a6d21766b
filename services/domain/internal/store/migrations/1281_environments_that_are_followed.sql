-- The entrance of an environment depends on the environments that it follows: the one before it, or those that the pipeline names (D32, R3-16).

-- +goose Up
ALTER TABLE cd_rollout_environments
    ADD COLUMN follows bigint[],
    ADD CONSTRAINT cd_rollout_environments_follows_are_bounded CHECK (cardinality(follows) <= 50) NOT VALID;
ALTER TABLE cd_rollout_environments VALIDATE CONSTRAINT cd_rollout_environments_follows_are_bounded;
ALTER TABLE cd_rollout_environments ADD COLUMN needs_health boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_rollout_environments.follows IS 'The environments whose active checks guard its entrance, by number. Null for the one before it, as in rollouts from before the column.';
COMMENT ON COLUMN cd_rollout_environments.needs_health IS 'Whether it is entered only while nothing is known to be unhealthy that the rollout has deployed to what it follows. Not of a rollback.';

DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    WHEN ((OLD.id, OLD.organization_id, OLD.rollout_id, OLD.environment_id, OLD.position, OLD.driver_binding_id, OLD.driver_digest,
            OLD.previous_version_set_id, OLD.weights, OLD.skips_weights, OLD.follows, OLD.needs_health, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.organization_id, NEW.rollout_id, NEW.environment_id, NEW.position, NEW.driver_binding_id, NEW.driver_digest,
            NEW.previous_version_set_id, NEW.weights, NEW.skips_weights, NEW.follows, NEW.needs_health, NEW.created_at))
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id',
        'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'follows', 'needs_health', 'created_at');

-- +goose Down
DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    WHEN ((OLD.id, OLD.organization_id, OLD.rollout_id, OLD.environment_id, OLD.position, OLD.driver_binding_id, OLD.driver_digest,
            OLD.previous_version_set_id, OLD.weights, OLD.skips_weights, OLD.created_at)
        IS DISTINCT FROM (NEW.id, NEW.organization_id, NEW.rollout_id, NEW.environment_id, NEW.position, NEW.driver_binding_id, NEW.driver_digest,
            NEW.previous_version_set_id, NEW.weights, NEW.skips_weights, NEW.created_at))
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id',
        'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'created_at');

ALTER TABLE cd_rollout_environments DROP COLUMN needs_health;
ALTER TABLE cd_rollout_environments DROP COLUMN follows;
