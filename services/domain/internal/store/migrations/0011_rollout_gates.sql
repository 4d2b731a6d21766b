-- A rollout's journal tells the gates at which all deployments stand, and the passages that were asked for and granted:
-- rows that change no state. A pause or a resumption is a row of the same kind while it is only asked for (D17).

-- +goose Up
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry')),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END),
    ADD CONSTRAINT cd_rollout_transitions_terminal_asks_nothing CHECK (from_state IS NULL OR from_state < 3);

-- +goose Down
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_terminal_asks_nothing,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK ((event IN ('request_approval', 'approve', 'reject', 'abort', 'retry')) = (from_state IS NOT NULL AND from_state = to_state)),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'complete', 'fail', 'cancel', 'abort', 'retry'));
