-- What a rollout changes in files: said before it is begun, by a preview, and kept with each deployment once it is committed.

-- +goose Up
ALTER TABLE cd_deployment_snapshots ADD COLUMN changes jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN cd_deployment_snapshots.changes IS 'What the commit changed for this deployment, file by file; empty too for drivers that do not tell.';

CREATE TABLE cd_rollout_previews (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_previews_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    state           smallint NOT NULL DEFAULT 0 CONSTRAINT cd_rollout_previews_state_is_known CHECK (state BETWEEN 0 AND 2),
    reason          text NOT NULL DEFAULT '',
    environments    jsonb NOT NULL DEFAULT '[]',
    workflow_ref    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_previews_version_set FOREIGN KEY (organization_id, application_id, version_set_id) REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_rollout_previews_failed_says_why CHECK ((state = 2) = (reason <> ''))
);
COMMENT ON TABLE cd_rollout_previews IS 'What a rollout of a version set would have changed, had it been begun when this was asked. Nothing is decided by it.';
COMMENT ON COLUMN cd_rollout_previews.state IS '0 pending 1 made 2 failed (reason says why)';
CREATE TRIGGER cd_rollout_previews_touch BEFORE UPDATE ON cd_rollout_previews FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_rollout_previews_question_is_immutable BEFORE UPDATE ON cd_rollout_previews FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'created_at');

ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_subject_is_known CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview')),
    DROP CONSTRAINT cd_handoffs_program_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview'));

-- +goose Down
-- What was handed over of previews stays true, so the narrower rules are for new rows only.
ALTER TABLE cd_handoffs
    DROP CONSTRAINT cd_handoffs_program_is_known,
    ADD CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup')) NOT VALID,
    DROP CONSTRAINT cd_handoffs_subject_is_known,
    ADD CONSTRAINT cd_handoffs_subject_is_known CHECK (subject_kind IN ('rollout', 'environment', 'application_environment')) NOT VALID;
DROP TABLE cd_rollout_previews;
ALTER TABLE cd_deployment_snapshots DROP COLUMN changes;
