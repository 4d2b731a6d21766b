-- The journal of changes: every change of a control, and those that wait for a second person.

-- +goose Up
CREATE SEQUENCE cd_journal_positions;

CREATE TABLE cd_changes (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions'),
    organization_id bigint NOT NULL CONSTRAINT cd_changes_organization REFERENCES cd_organizations (id),
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    action          text NOT NULL,
    subject_kind    text NOT NULL,
    subject_number  bigint NOT NULL,
    subject_name    text NOT NULL,
    application_id  bigint,
    environment_id  bigint,
    reason          text NOT NULL DEFAULT '',
    detail          text NOT NULL DEFAULT '',
    before          jsonb,
    after           jsonb,
    trace_id        text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_changes_action_is_given CHECK (action <> ''),
    CONSTRAINT cd_changes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_changes_subject_is_given CHECK (subject_kind <> '')
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON TABLE cd_changes IS 'The journal of changes to controls; append-only. Secrets are in none of its columns.';
COMMENT ON COLUMN cd_changes.action IS 'The name of the mutation.';
COMMENT ON COLUMN cd_changes.after IS 'What the control is from then on; NULL for one that was taken away.';
COMMENT ON COLUMN cd_changes.application_id IS 'The application that the change concerns; NULL where it concerns none, or all.';
COMMENT ON COLUMN cd_changes.before IS 'What the control was; NULL for one that is new.';
COMMENT ON COLUMN cd_changes.principal_name IS 'What the principal was called then.';
COMMENT ON COLUMN cd_changes.subject_number IS '0 where the subject has no number: a workflow has a name only.';
COMMENT ON COLUMN cd_changes.trace_id IS 'The trace of the request; empty where it was not traced.';
CREATE INDEX cd_changes_by_action ON cd_changes (organization_id, action, id);
CREATE INDEX cd_changes_by_application ON cd_changes (organization_id, application_id, id) WHERE application_id IS NOT NULL;
CREATE INDEX cd_changes_by_environment ON cd_changes (organization_id, environment_id, id) WHERE environment_id IS NOT NULL;
CREATE INDEX cd_changes_by_instant ON cd_changes (organization_id, created_at, id);
CREATE INDEX cd_changes_by_principal ON cd_changes (organization_id, principal_type, principal_id, id);
CREATE TRIGGER cd_changes_are_append_only BEFORE UPDATE OR DELETE ON cd_changes FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_changes_are_kept BEFORE TRUNCATE ON cd_changes EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_proposed_changes (
    organization_id bigint NOT NULL CONSTRAINT cd_proposed_changes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    proposer_id     bigint NOT NULL,
    proposer_name   text NOT NULL,
    action          text NOT NULL,
    subject_kind    text NOT NULL,
    subject_number  bigint NOT NULL,
    subject_name    text NOT NULL,
    application_id  bigint,
    environment_id  bigint,
    environments    bigint[] NOT NULL,
    reason          text NOT NULL DEFAULT '',
    detail          text NOT NULL DEFAULT '',
    input           jsonb NOT NULL,
    before          jsonb,
    after           jsonb,
    state           text NOT NULL DEFAULT 'open',
    expires_at      timestamptz NOT NULL,
    decided_at      timestamptz,
    decider_id      bigint,
    decider_name    text NOT NULL DEFAULT '',
    decision        text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_proposed_changes_key PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_proposed_changes_decider FOREIGN KEY (organization_id, decider_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_proposed_changes_proposer FOREIGN KEY (organization_id, proposer_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_proposed_changes_action_is_given CHECK (action <> ''),
    CONSTRAINT cd_proposed_changes_are_decided CHECK ((state IN ('open', 'expired')) = (decided_at IS NULL)),
    CONSTRAINT cd_proposed_changes_concern_one CHECK (cardinality(environments) > 0),
    CONSTRAINT cd_proposed_changes_state_is_known CHECK (state IN ('open', 'confirmed', 'forced', 'rejected', 'withdrawn', 'expired')),
    CONSTRAINT cd_proposed_changes_take_two CHECK (state NOT IN ('confirmed', 'rejected') OR decider_id <> proposer_id)
);
COMMENT ON TABLE cd_proposed_changes IS 'A row for each change that a person has proposed. Ends when it is decided, or after a week; kept as long as cd_changes, which has what was decided.';
COMMENT ON COLUMN cd_proposed_changes.before IS 'The control as it was when the change was proposed, without secrets: confirmed is only what was shown.';
COMMENT ON COLUMN cd_proposed_changes.input IS 'What the use case of the action is called with again once the change is confirmed.';
CREATE INDEX cd_proposed_changes_open ON cd_proposed_changes (organization_id, id) WHERE state = 'open';
CREATE TRIGGER cd_proposed_changes_are_immutable BEFORE UPDATE ON cd_proposed_changes FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('organization_id', 'id', 'proposer_id', 'action', 'environments', 'input', 'before',
    'after', 'expires_at', 'created_at');
CREATE TRIGGER cd_proposed_changes_are_kept BEFORE DELETE ON cd_proposed_changes FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_proposed_changes_touch BEFORE UPDATE ON cd_proposed_changes FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_proposed_changes;
DROP TABLE cd_changes;
DROP SEQUENCE cd_journal_positions;
