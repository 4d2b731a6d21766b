-- The inputs of a rollout (R4-09): pinned when it is made, and kept while it waits in the queue.

-- +goose Up
ALTER TABLE cd_rollouts
    ADD COLUMN inputs jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT cd_rollouts_inputs_are_an_object CHECK (jsonb_typeof(inputs) = 'object' AND octet_length(inputs::text) <= 65536);
COMMENT ON COLUMN cd_rollouts.inputs IS 'What it was given when it was made, with defaults; an empty object for a pipeline that declares no inputs.';
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'passages', 'strategy', 'strategy_reason', 'inputs', 'created_at');

ALTER TABLE cd_queued_rollouts
    ADD COLUMN inputs jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT cd_queued_rollouts_inputs_are_an_object CHECK (jsonb_typeof(inputs) = 'object' AND octet_length(inputs::text) <= 65536);
COMMENT ON COLUMN cd_queued_rollouts.inputs IS 'What the requester has given; defaults are added when it begins.';

-- +goose Down
ALTER TABLE cd_queued_rollouts DROP COLUMN inputs;
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'passages', 'strategy', 'strategy_reason', 'created_at');
ALTER TABLE cd_rollouts DROP COLUMN inputs;
