-- +goose Up
-- An attempt at a job of the pipeline begins and ends with a row in the journal of its rollout (D54). gate_id is the place of the job:
-- environment/when/name#attempt.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'stop_passage', 'start_job', 'end_job')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID;
ALTER TABLE cd_rollout_transitions
    VALIDATE CONSTRAINT cd_rollout_transitions_verb_is_known,
    VALIDATE CONSTRAINT cd_rollout_transitions_gate_is_named,
    VALIDATE CONSTRAINT cd_rollout_transitions_request_changes_nothing;

-- +goose Down
-- Rows with the newer verbs stay: a journal loses nothing. The older code refuses to make more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'stop_passage')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze')) NOT VALID;
