-- Rollouts that wait for the drivers to compare the manifests (R4-19).

-- +goose Up
ALTER TABLE cd_queued_rollouts ADD COLUMN comparison_id bigint, ADD COLUMN compares_until timestamptz,
    ADD CONSTRAINT cd_queued_rollouts_comparison FOREIGN KEY (organization_id, comparison_id)
        REFERENCES cd_rollout_previews (organization_id, id) ON DELETE SET NULL (comparison_id);
COMMENT ON COLUMN cd_queued_rollouts.comparison_id IS 'What the drivers were asked to compare; null before, and once that is deleted.';
COMMENT ON COLUMN cd_queued_rollouts.compares_until IS 'Until when the rollout waits for it; null once there is a result.';
CREATE INDEX cd_queued_rollouts_by_comparison ON cd_queued_rollouts (organization_id, comparison_id) WHERE comparison_id IS NOT NULL;

ALTER TABLE cd_handoffs DROP CONSTRAINT cd_handoffs_program_is_known, ADD CONSTRAINT cd_handoffs_program_is_known
    CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'plan', 'check'));

-- +goose Down
UPDATE cd_handoffs SET program = 'preview' WHERE program = 'plan';
ALTER TABLE cd_handoffs DROP CONSTRAINT cd_handoffs_program_is_known, ADD CONSTRAINT cd_handoffs_program_is_known
    CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'check'));
DROP INDEX cd_queued_rollouts_by_comparison;
ALTER TABLE cd_queued_rollouts DROP CONSTRAINT cd_queued_rollouts_comparison, DROP COLUMN comparison_id, DROP COLUMN compares_until;
