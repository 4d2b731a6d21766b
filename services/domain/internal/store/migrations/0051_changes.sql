-- Who changed which control, when, and what it was before and after: one journal for pipelines, approvals, policies, sources, environments,
-- applications, access and workflows (D50). It shares the positions of the rollouts' journals, so that all of them read as one story.

-- +goose Up
CREATE TABLE cd_changes (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions') PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_changes_organization REFERENCES cd_organizations (id),
    principal_type  text NOT NULL CONSTRAINT cd_changes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    action          text NOT NULL CONSTRAINT cd_changes_action_is_given CHECK (action <> ''),
    subject_kind    text NOT NULL CONSTRAINT cd_changes_subject_is_given CHECK (subject_kind <> ''),
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
    CONSTRAINT cd_changes_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_changes_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_changes IS 'The journal of changes to controls; append-only (R39, D50). Secrets are in none of its columns.';
COMMENT ON COLUMN cd_changes.principal_name IS 'What the principal was called then.';
COMMENT ON COLUMN cd_changes.action IS 'The name of the mutation.';
COMMENT ON COLUMN cd_changes.subject_number IS '0 where the subject has no number: a workflow has a name only.';
COMMENT ON COLUMN cd_changes.application_id IS 'The application that the change concerns; NULL where it concerns none, or all.';
COMMENT ON COLUMN cd_changes.before IS 'What the control was; NULL for one that is new, and for rows from before this journal.';
COMMENT ON COLUMN cd_changes.after IS 'What the control is from then on; NULL for one that was taken away.';
COMMENT ON COLUMN cd_changes.trace_id IS 'The trace of the request; empty where it was not traced.';
CREATE INDEX cd_changes_by_position ON cd_changes (organization_id, id);
CREATE INDEX cd_changes_by_principal ON cd_changes (organization_id, principal_type, principal_id, id);
CREATE INDEX cd_changes_by_action ON cd_changes (organization_id, action, id);
CREATE INDEX cd_changes_by_application ON cd_changes (organization_id, application_id, id) WHERE application_id IS NOT NULL;
CREATE INDEX cd_changes_by_environment ON cd_changes (organization_id, environment_id, id) WHERE environment_id IS NOT NULL;
CREATE INDEX cd_changes_by_instant ON cd_changes (organization_id, created_at, id);
-- What people, machines, policies and schedules did to rollouts: most rows are the system's.
CREATE INDEX cd_rollout_transitions_by_principal ON cd_rollout_transitions (organization_id, principal_type, principal_id, id) WHERE principal_type <> 'system';
CREATE INDEX cd_rollout_transitions_by_instant ON cd_rollout_transitions (organization_id, created_at, id) WHERE principal_type <> 'system';

CREATE TRIGGER cd_changes_are_append_only BEFORE UPDATE OR DELETE ON cd_changes FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_changes_are_kept BEFORE TRUNCATE ON cd_changes EXECUTE FUNCTION cd_refuse();

-- The log of access is part of this journal from here on. Its table keeps its rows, and a replica of the release before may add to it while the
-- new one is rolled out: what it adds is copied.
SELECT set_config('lockstep.across', 'on', true);
INSERT INTO cd_changes (organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name, detail, created_at)
SELECT c.organization_id, c.principal_type, c.principal_id, COALESCE(m.name, c.principal_type), c.action, c.subject_kind, c.subject_number, c.subject_name, c.detail, c.created_at
FROM cd_access_changes c
LEFT JOIN cd_members m ON m.organization_id = c.organization_id AND m.id = c.principal_id AND c.principal_type IN ('user', 'agent')
ORDER BY c.id;
-- +goose StatementBegin
CREATE FUNCTION cd_copy_access_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cd_changes (organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name, detail)
    SELECT NEW.organization_id, NEW.principal_type, NEW.principal_id,
        COALESCE((SELECT m.name FROM cd_members m WHERE m.organization_id = NEW.organization_id AND m.id = NEW.principal_id), NEW.principal_type),
        NEW.action, NEW.subject_kind, NEW.subject_number, NEW.subject_name, NEW.detail;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER cd_access_changes_are_copied AFTER INSERT ON cd_access_changes FOR EACH ROW EXECUTE FUNCTION cd_copy_access_change();
COMMENT ON TABLE cd_access_changes IS 'The log of access until 0051; cd_changes has these rows, and all later ones.';

-- +goose Down
DROP TRIGGER cd_access_changes_are_copied ON cd_access_changes;
DROP FUNCTION cd_copy_access_change();
COMMENT ON TABLE cd_access_changes IS 'Who has given or taken whose access, and when; append-only (R39).';
DROP INDEX cd_rollout_transitions_by_instant;
DROP INDEX cd_rollout_transitions_by_principal;
DROP TABLE cd_changes;
