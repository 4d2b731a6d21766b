-- Policies decide about changes of controls, which belong to no rollout.

-- +goose Up
ALTER TABLE cd_policy_decisions ALTER COLUMN rollout_id DROP NOT NULL;
ALTER TABLE cd_policy_decisions ADD CONSTRAINT cd_policy_decisions_only_of_controls CHECK (rollout_id IS NOT NULL OR gate_id = 'control.change') NOT VALID;
COMMENT ON TABLE cd_policy_decisions IS 'What policies decided about rollouts, their passages and changes of controls, with what they were asked; a decision that repeats the one before it about the same gate is not added. Append-only; rows are kept as the evidence of passages, and grow with the history.';
COMMENT ON COLUMN cd_policy_decisions.gate_id IS 'The passage; empty for the creation of the rollout. rollout.complete for its end, PASSAGE/freeze.bypass for a freeze that it is let past, and control.change for a change of a control.';
COMMENT ON COLUMN cd_policy_decisions.rollout_id IS 'None for a change of a control.';

-- +goose Down
ALTER TABLE cd_policy_decisions DISABLE TRIGGER cd_policy_decisions_are_append_only;
DELETE FROM cd_policy_decisions WHERE rollout_id IS NULL;
ALTER TABLE cd_policy_decisions ENABLE TRIGGER cd_policy_decisions_are_append_only;
ALTER TABLE cd_policy_decisions DROP CONSTRAINT cd_policy_decisions_only_of_controls;
ALTER TABLE cd_policy_decisions ALTER COLUMN rollout_id SET NOT NULL;
