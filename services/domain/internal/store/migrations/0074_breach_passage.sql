-- The row of a breach names the passage that was not granted as a condition, as the rows of other passages name theirs (D46).
-- Older code writes no such rows and reads none of their conditions.
-- +goose Up
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR breach OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze', 'approve'));
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, which weights the program of a requested one will skip, what stops one, which freezes are bypassed, which groups an approval counts for, or which passage a breach went around.';

-- +goose Down
-- Rows of breaches keep their conditions: a journal loses nothing. The older code makes no more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze', 'approve')) NOT VALID;
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, which weights the program of a requested one will skip, what stops one, which freezes are bypassed, or which groups an approval counts for.';
