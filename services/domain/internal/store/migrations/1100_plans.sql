-- The plan of a rollout (D59): whether it stops at weights, and why, as pinned when it was made; and what a commit says, which may decide.

-- +goose Up
ALTER TABLE cd_rollouts
    ADD COLUMN strategy text NOT NULL DEFAULT '' CONSTRAINT cd_rollouts_strategy_is_known CHECK (strategy IN ('', 'quick', 'pipeline')),
    ADD COLUMN strategy_reason text NOT NULL DEFAULT '',
    ADD CONSTRAINT cd_rollouts_strategy_has_a_reason CHECK ((strategy = '') = (strategy_reason = ''));
COMMENT ON COLUMN cd_rollouts.strategy IS 'quick: it stops at no weight, and what these require is required at the entrance of their environment. Empty for rollouts of releases that did not plan.';
COMMENT ON COLUMN cd_rollouts.strategy_reason IS 'Why, in one sentence.';
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'passages', 'strategy', 'strategy_reason', 'created_at');

ALTER TABLE cd_rollout_environments
    DROP CONSTRAINT cd_rollout_environments_skips_weights_is_known,
    ADD CONSTRAINT cd_rollout_environments_skips_weights_is_known CHECK (skips_weights IN ('', 'first_deploy', 'unchanged', 'promote_full', 'no_gates', 'quick_sync')) NOT VALID;
ALTER TABLE cd_rollout_environments VALIDATE CONSTRAINT cd_rollout_environments_skips_weights_is_known;

ALTER TABLE cd_queued_rollouts
    ADD COLUMN strategy text NOT NULL DEFAULT '' CONSTRAINT cd_queued_rollouts_strategy_is_known CHECK (strategy IN ('', 'auto', 'quick', 'pipeline'));
COMMENT ON COLUMN cd_queued_rollouts.strategy IS 'What the requester has chosen; empty for auto.';

ALTER TABLE cd_versions
    ADD COLUMN commit_message text NOT NULL DEFAULT '' CONSTRAINT cd_versions_commit_message_is_bounded CHECK (octet_length(commit_message) <= 4096);
COMMENT ON COLUMN cd_versions.commit_message IS 'The beginning of the message of a commit; empty for an image, and where it is not known.';

ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'plan', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('plan', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID;
ALTER TABLE cd_rollout_transitions
    VALIDATE CONSTRAINT cd_rollout_transitions_verb_is_known,
    VALIDATE CONSTRAINT cd_rollout_transitions_request_changes_nothing;

-- +goose Down
-- Rows with the newer verb stay: a journal loses nothing. The older code makes no more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID;
ALTER TABLE cd_versions DROP COLUMN commit_message;
ALTER TABLE cd_queued_rollouts DROP COLUMN strategy;
ALTER TABLE cd_rollout_environments
    DROP CONSTRAINT cd_rollout_environments_skips_weights_is_known,
    ADD CONSTRAINT cd_rollout_environments_skips_weights_is_known CHECK (skips_weights IN ('', 'first_deploy', 'unchanged', 'promote_full', 'no_gates')) NOT VALID;
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'passages', 'created_at');
ALTER TABLE cd_rollouts DROP CONSTRAINT cd_rollouts_strategy_has_a_reason, DROP COLUMN strategy_reason, DROP COLUMN strategy;
