-- Changes of controls that a second person has to confirm (D50).

-- +goose Up
ALTER TABLE cd_environment_protections ADD COLUMN change_control boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_environment_protections.change_control IS 'A change of the environment''s controls takes a second person.';

CREATE TABLE cd_proposed_changes (
    organization_id bigint NOT NULL CONSTRAINT cd_proposed_changes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    proposer_id     bigint NOT NULL,
    proposer_name   text NOT NULL,
    action          text NOT NULL CONSTRAINT cd_proposed_changes_action_is_given CHECK (action <> ''),
    subject_kind    text NOT NULL,
    subject_number  bigint NOT NULL,
    subject_name    text NOT NULL,
    application_id  bigint,
    environment_id  bigint,
    environments    bigint[] NOT NULL CONSTRAINT cd_proposed_changes_concern_one CHECK (cardinality(environments) > 0),
    reason          text NOT NULL DEFAULT '',
    detail          text NOT NULL DEFAULT '',
    input           jsonb NOT NULL,
    before          jsonb,
    after           jsonb,
    state           text NOT NULL DEFAULT 'open' CONSTRAINT cd_proposed_changes_state_is_known
        CHECK (state IN ('open', 'confirmed', 'forced', 'rejected', 'withdrawn', 'expired')),
    expires_at      timestamptz NOT NULL,
    decided_at      timestamptz,
    decider_id      bigint,
    decider_name    text NOT NULL DEFAULT '',
    decision        text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_proposed_changes_key PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_proposed_changes_proposer FOREIGN KEY (organization_id, proposer_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_proposed_changes_decider FOREIGN KEY (organization_id, decider_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_proposed_changes_are_decided CHECK ((state IN ('open', 'expired')) = (decided_at IS NULL)),
    CONSTRAINT cd_proposed_changes_take_two CHECK (state NOT IN ('confirmed', 'rejected') OR decider_id <> proposer_id)
);
COMMENT ON TABLE cd_proposed_changes IS 'A row for each change that a person has proposed. Ends when it is decided, or after a week; kept as long as cd_changes, which has what was decided.';
COMMENT ON COLUMN cd_proposed_changes.input IS 'What the use case of the action is called with again once the change is confirmed.';
COMMENT ON COLUMN cd_proposed_changes.before IS 'The control as it was when the change was proposed, without secrets: confirmed is only what was shown.';
CREATE INDEX cd_proposed_changes_open ON cd_proposed_changes (organization_id, id) WHERE state = 'open';
CREATE TRIGGER cd_proposed_changes_touch BEFORE UPDATE ON cd_proposed_changes FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_proposed_changes_are_kept BEFORE DELETE ON cd_proposed_changes FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_proposed_changes_are_immutable BEFORE UPDATE ON cd_proposed_changes FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('organization_id', 'id', 'proposer_id', 'action', 'environments', 'input', 'before', 'after', 'expires_at', 'created_at');

-- +goose Down
DROP TABLE cd_proposed_changes;
ALTER TABLE cd_environment_protections DROP COLUMN change_control;
