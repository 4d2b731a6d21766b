-- A check may be of a kind that is data: a bundle whose program decides (D48). A run of the program is opened once the check is required,
-- and ended when it no longer is.

-- +goose Up
ALTER TABLE cd_rollout_checks
    ADD COLUMN config jsonb,
    ADD COLUMN kind_digest text,
    ADD CONSTRAINT cd_rollout_checks_bundle FOREIGN KEY (organization_id, kind_digest) REFERENCES cd_driver_bundles (organization_id, digest),
    ADD CONSTRAINT cd_rollout_checks_config_is_bounded CHECK (length(config::text) <= 262144),
    ADD CONSTRAINT cd_rollout_checks_program_is_pinned CHECK ((kind LIKE '%@%') = (kind_digest IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer', 'schedule', 'health') OR kind ~ '^[a-z0-9]+(-[a-z0-9]+)*@[1-9][0-9]{0,3}$');
COMMENT ON COLUMN cd_rollout_checks.config IS 'The configuration of a check whose kind is a bundle, as its author wrote it.';
COMMENT ON COLUMN cd_rollout_checks.kind_digest IS 'The bundle of the kind, as it was when the rollout was created; null for the kinds that the service evaluates itself.';

CREATE TABLE cd_check_runs (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_check_runs_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    target          text NOT NULL,
    key             text NOT NULL,
    own             boolean NOT NULL,
    number          integer NOT NULL CONSTRAINT cd_check_runs_are_counted_from_one CHECK (number >= 1),
    workflow_ref    text,
    ended_at        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_check_runs_check FOREIGN KEY (organization_id, rollout_id, environment_id, target, key, own)
        REFERENCES cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, own),
    CONSTRAINT cd_check_runs_are_numbered UNIQUE (organization_id, rollout_id, environment_id, target, key, own, number)
);
CREATE UNIQUE INDEX cd_check_runs_one_is_open ON cd_check_runs (organization_id, rollout_id, environment_id, target, key, own) WHERE ended_at IS NULL;
CREATE TRIGGER cd_check_runs_touch BEFORE UPDATE ON cd_check_runs FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_check_runs IS 'Runs of the programs of checks. What a run has reported is among the statuses, under its number; only what the latest run of a check reports counts for its rollout. Rows end with the rollout.';
COMMENT ON COLUMN cd_check_runs.number IS 'Counts the runs of the check, from 1: another one is opened when a check whose run has ended is to be evaluated again.';
COMMENT ON COLUMN cd_check_runs.ended_at IS 'Since when the run reports nothing any more: its program has ended, or the check is not required any more.';

ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_program_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'check')),
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_subject_is_known CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview', 'check'));

-- +goose Down
DELETE FROM cd_handoffs WHERE subject_kind = 'check';
ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_program_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview')),
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_subject_is_known CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview'));
DROP TABLE cd_check_runs;
ALTER TABLE cd_rollout_checks DISABLE TRIGGER cd_rollout_checks_are_immutable;
DELETE FROM cd_rollout_checks WHERE kind LIKE '%@%';
ALTER TABLE cd_rollout_checks ENABLE TRIGGER cd_rollout_checks_are_immutable;
ALTER TABLE cd_rollout_checks
    DROP CONSTRAINT cd_rollout_checks_kind_is_known,
    ADD CONSTRAINT cd_rollout_checks_kind_is_known CHECK (kind IN ('status', 'timer', 'schedule', 'health')),
    DROP CONSTRAINT cd_rollout_checks_program_is_pinned,
    DROP CONSTRAINT cd_rollout_checks_config_is_bounded,
    DROP CONSTRAINT cd_rollout_checks_bundle,
    DROP COLUMN kind_digest,
    DROP COLUMN config;
