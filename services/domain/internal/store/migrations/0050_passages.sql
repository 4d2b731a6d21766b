-- The domain opens passages (D46): what each of them needs is pinned with the rollout, and the journal row of a passage names what satisfied it.

-- +goose Up
ALTER TABLE cd_rollouts ADD COLUMN passages boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_rollouts.passages IS 'Nothing of it advances beyond a passage that was not granted. False for rollouts that were created by releases whose programs requested approvals themselves.';
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'passages', 'created_at');

ALTER TABLE cd_rollout_environments
    ADD COLUMN weights jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN skips_weights text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_environments_skips_weights_is_known CHECK (skips_weights IN ('', 'first_deploy', 'unchanged', 'promote_full', 'no_gates'));
COMMENT ON COLUMN cd_rollout_environments.weights IS 'The weights at which the pipeline stops here, rising: [{"weight": percent, "soak_seconds": seconds}].';
COMMENT ON COLUMN cd_rollout_environments.skips_weights IS 'Why the rollout will not stop at them; their conditions then apply at the entrance. Empty if it will.';
DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id', 'driver_digest', 'previous_version_set_id', 'weights', 'skips_weights', 'created_at');

ALTER TABLE cd_rollout_gates
    ADD COLUMN reason text NOT NULL DEFAULT '',
    ADD COLUMN own boolean NOT NULL DEFAULT false,
    ADD COLUMN before_environment_id bigint;
COMMENT ON COLUMN cd_rollout_gates.reason IS 'What the people who decide are shown.';
COMMENT ON COLUMN cd_rollout_gates.own IS 'A program requested it; neither the pipeline nor an environment did.';
COMMENT ON COLUMN cd_rollout_gates.before_environment_id IS 'The environment that comes after a step between environments; null for every other gate, and for a step after the last environment.';

ALTER TABLE cd_rollout_transitions
    ADD COLUMN conditions jsonb,
    ADD COLUMN breach boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate')),
    ADD CONSTRAINT cd_rollout_transitions_breach_is_a_failure CHECK (NOT breach OR event = 'fail');
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, or which weights the program of a requested one will skip.';
COMMENT ON COLUMN cd_rollout_transitions.breach IS 'The rollout failed because it advanced beyond a passage that was not granted.';
CREATE INDEX cd_rollout_transitions_breaches ON cd_rollout_transitions (created_at) WHERE breach;

-- +goose StatementBegin
CREATE FUNCTION cd_breaches() RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE times bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*) INTO times FROM cd_rollout_transitions WHERE breach;
    PERFORM set_config('lockstep.across', '', true);
    RETURN times;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_breaches() IS 'For the metrics of the whole installation: how many rollouts failed because they advanced beyond a passage that was not granted.';

-- +goose Down
DROP FUNCTION cd_breaches();
DROP INDEX cd_rollout_transitions_breaches;
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_breach_is_a_failure,
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    DROP COLUMN breach,
    DROP COLUMN conditions;
ALTER TABLE cd_rollout_gates
    DROP COLUMN before_environment_id,
    DROP COLUMN own,
    DROP COLUMN reason;
DROP TRIGGER cd_rollout_environments_pins_are_immutable ON cd_rollout_environments;
CREATE TRIGGER cd_rollout_environments_pins_are_immutable BEFORE UPDATE ON cd_rollout_environments FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'rollout_id', 'environment_id', 'position', 'driver_binding_id', 'driver_digest', 'previous_version_set_id', 'created_at');
ALTER TABLE cd_rollout_environments
    DROP COLUMN skips_weights,
    DROP COLUMN weights;
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'created_at');
ALTER TABLE cd_rollouts DROP COLUMN passages;
