-- The journals: the record of who did what to which rollout, environment and deployment, and why. Append-only; the state
-- columns are caches of them (R39, R42). One sequence numbers all three, so that they read as one story.

-- +goose Up
CREATE SEQUENCE cd_journal_positions AS bigint;

CREATE TABLE cd_rollout_transitions (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions') PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_transitions_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    from_state      smallint,
    to_state        smallint NOT NULL,
    event           text NOT NULL CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'complete', 'fail', 'cancel', 'abort', 'retry')),
    gate_id         text,
    principal_type  text NOT NULL CONSTRAINT cd_rollout_transitions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint,
    reason          text,
    triggered_by    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_transitions_subject FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject')) = (gate_id IS NOT NULL)),
    CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK ((event IN ('request_approval', 'approve', 'reject', 'abort', 'retry')) = (from_state IS NOT NULL AND from_state = to_state)),
    CONSTRAINT cd_rollout_transitions_path_is_legal CHECK (CASE WHEN from_state IS NULL THEN to_state = 0 ELSE from_state = to_state OR (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1), (2, 4), (2, 5)) END)
);
CREATE INDEX cd_rollout_transitions_by_subject ON cd_rollout_transitions (organization_id, rollout_id, id);

CREATE TABLE cd_rollout_environment_transitions (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions') PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_environment_transitions_organization REFERENCES cd_organizations (id),
    rollout_environment_id bigint NOT NULL,
    from_state      smallint,
    to_state        smallint NOT NULL,
    event           text NOT NULL CONSTRAINT cd_rollout_environment_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'complete', 'fail', 'cancel')),
    principal_type  text NOT NULL CONSTRAINT cd_rollout_environment_transitions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint,
    reason          text,
    triggered_by    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_environment_transitions_subject FOREIGN KEY (organization_id, rollout_environment_id) REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_rollout_environment_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_rollout_environment_transitions_path_is_legal CHECK (CASE WHEN from_state IS NULL THEN to_state = 0 ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1), (2, 4), (2, 5)) END)
);
CREATE INDEX cd_rollout_environment_transitions_by_subject ON cd_rollout_environment_transitions (organization_id, rollout_environment_id, id);

CREATE TABLE cd_deployment_transitions (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions') PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_transitions_organization REFERENCES cd_organizations (id),
    deployment_id   bigint NOT NULL,
    from_state      smallint,
    to_state        smallint NOT NULL,
    event           text NOT NULL CONSTRAINT cd_deployment_transitions_verb_is_known CHECK (event IN ('create', 'start', 'complete', 'degrade', 'fail', 'cancel')),
    principal_type  text NOT NULL CONSTRAINT cd_deployment_transitions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint,
    reason          text,
    triggered_by    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_deployment_transitions_subject FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id),
    CONSTRAINT cd_deployment_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE WHEN from_state IS NULL THEN to_state = 0 ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5)) END)
);
CREATE INDEX cd_deployment_transitions_by_subject ON cd_deployment_transitions (organization_id, deployment_id, id);

COMMENT ON COLUMN cd_rollout_transitions.gate_id IS 'The gate that is asked about, or answered (D24); several may be open at once.';
COMMENT ON TABLE cd_rollout_environment_transitions IS 'Beside the two journals of the design: a rollout environment has a state, so it has a journal.';
CREATE INDEX cd_rollout_transitions_by_gate ON cd_rollout_transitions (organization_id, rollout_id, gate_id, id) WHERE gate_id IS NOT NULL;

CREATE TRIGGER cd_rollout_transitions_are_append_only BEFORE UPDATE OR DELETE ON cd_rollout_transitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_transitions_are_kept BEFORE TRUNCATE ON cd_rollout_transitions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_environment_transitions_are_append_only BEFORE UPDATE OR DELETE ON cd_rollout_environment_transitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_environment_transitions_are_kept BEFORE TRUNCATE ON cd_rollout_environment_transitions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_transitions_are_append_only BEFORE UPDATE OR DELETE ON cd_deployment_transitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_transitions_are_kept BEFORE TRUNCATE ON cd_deployment_transitions EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_deployment_transitions;
DROP TABLE cd_rollout_environment_transitions;
DROP TABLE cd_rollout_transitions;
DROP SEQUENCE cd_journal_positions;
