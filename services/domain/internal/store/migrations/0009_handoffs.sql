-- What is still to be handed over to the workflow engine. Written with the change that wants it, so that nothing is lost
-- between commit and call.

-- +goose Up
CREATE TABLE cd_handoffs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_handoffs_organization REFERENCES cd_organizations (id),
    kind            text NOT NULL CONSTRAINT cd_handoffs_kind_is_known CHECK (kind IN ('start', 'cancel')),
    workflow_id     text NOT NULL CONSTRAINT cd_handoffs_workflow_is_given CHECK (workflow_id <> ''),
    subject_kind    text NOT NULL CONSTRAINT cd_handoffs_subject_is_known CHECK (subject_kind IN ('rollout', 'environment', 'application_environment')),
    subject_id      bigint NOT NULL,
    program         text CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup')),
    driver_digest   text,
    inputs          jsonb,
    reason          text NOT NULL DEFAULT '',
    state           smallint NOT NULL DEFAULT 0 CONSTRAINT cd_handoffs_state_is_known CHECK (state BETWEEN 0 AND 3),
    attempts        integer NOT NULL DEFAULT 0,
    due_at          timestamptz NOT NULL,
    error           text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_handoffs_driver_bundle FOREIGN KEY (organization_id, driver_digest) REFERENCES cd_driver_bundles (organization_id, digest),
    CONSTRAINT cd_handoffs_start_is_complete CHECK ((kind = 'start') = (program IS NOT NULL AND driver_digest IS NOT NULL AND inputs IS NOT NULL)),
    CONSTRAINT cd_handoffs_once_per_workflow UNIQUE (organization_id, workflow_id, kind)
);
COMMENT ON COLUMN cd_handoffs.state IS '0 pending 1 done 2 failed 3 withdrawn (the start of something cancelled before it was handed over)';
COMMENT ON COLUMN cd_handoffs.due_at IS 'When it is to be tried, or, after a claim, tried again should the claimer be gone.';
COMMENT ON COLUMN cd_handoffs.error IS 'What the last attempt met; for operators.';
CREATE INDEX cd_handoffs_due ON cd_handoffs (due_at, id) WHERE state = 0;
CREATE TRIGGER cd_handoffs_touch BEFORE UPDATE ON cd_handoffs FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_handoffs;
