-- The program of a driver that stops what a cancelled rollout has left behind (D53).

-- +goose Up
ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_program_is_known,
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known
        CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'plan', 'check', 'cancelled')),
    ADD CONSTRAINT cd_handoffs_subject_is_known
        CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview', 'check', 'cancellation'));

-- +goose Down
DELETE FROM cd_handoffs WHERE subject_kind = 'cancellation';
ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_program_is_known,
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'plan', 'check')),
    ADD CONSTRAINT cd_handoffs_subject_is_known
        CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview', 'check'));
