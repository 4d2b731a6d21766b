-- Who may answer a gate of a rollout, and until when: pinned with the rollout (D24, D28). What an environment asks of every
-- rollout that enters it. And the gates whose time will be over.

-- +goose Up
CREATE TABLE cd_rollout_gates (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id       bigint NOT NULL CONSTRAINT cd_rollout_gates_organization REFERENCES cd_organizations (id),
    rollout_id            bigint NOT NULL,
    gate_id               text NOT NULL CONSTRAINT cd_rollout_gates_gate_is_named CHECK (gate_id <> ''),
    quorum                integer NOT NULL CONSTRAINT cd_rollout_gates_quorum_counts CHECK (quorum BETWEEN 1 AND 20),
    approver_group        text NOT NULL DEFAULT '',
    requester_may_approve boolean NOT NULL,
    expires_after_seconds integer NOT NULL DEFAULT 0 CONSTRAINT cd_rollout_gates_time_is_bounded CHECK (expires_after_seconds BETWEEN 0 AND 2592000),
    on_expiry             text NOT NULL DEFAULT 'reject' CONSTRAINT cd_rollout_gates_outcome_is_known CHECK (on_expiry IN ('reject', 'approve')),
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_gates_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_gates_gate_is_unique UNIQUE (organization_id, rollout_id, gate_id)
);
COMMENT ON COLUMN cd_rollout_gates.approver_group IS 'Those who decide belong to it; empty for anybody.';
COMMENT ON COLUMN cd_rollout_gates.expires_after_seconds IS '0: the question stands until the rollout ends.';
CREATE TRIGGER cd_rollout_gates_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_gates FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_gates_are_kept BEFORE TRUNCATE ON cd_rollout_gates EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_environment_approvals (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id       bigint NOT NULL CONSTRAINT cd_environment_approvals_organization REFERENCES cd_organizations (id),
    environment_id        bigint NOT NULL,
    asks                  boolean NOT NULL DEFAULT true,
    reason                text NOT NULL DEFAULT '',
    quorum                integer NOT NULL CONSTRAINT cd_environment_approvals_quorum_counts CHECK (quorum BETWEEN 1 AND 20),
    approver_group        text NOT NULL DEFAULT '',
    requester_may_approve boolean NOT NULL,
    expires_after_seconds integer NOT NULL DEFAULT 0 CONSTRAINT cd_environment_approvals_time_is_bounded CHECK (expires_after_seconds BETWEEN 0 AND 2592000),
    on_expiry             text NOT NULL DEFAULT 'reject' CONSTRAINT cd_environment_approvals_outcome_is_known CHECK (on_expiry IN ('reject', 'approve')),
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_environment_approvals_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_environment_approvals_one_per_environment UNIQUE (organization_id, environment_id)
);
COMMENT ON TABLE cd_environment_approvals IS 'No row, or one that does not ask: the environment asks nobody by itself. A rollout pins what there is when it is made.';
CREATE TRIGGER cd_environment_approvals_touch BEFORE UPDATE ON cd_environment_approvals FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_gate_expiries (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_gate_expiries_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL,
    asked_at        timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    settled         boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_gate_expiries_gate FOREIGN KEY (organization_id, rollout_id, gate_id) REFERENCES cd_rollout_gates (organization_id, rollout_id, gate_id),
    CONSTRAINT cd_gate_expiries_once_per_request UNIQUE (organization_id, rollout_id, gate_id, asked_at)
);
COMMENT ON COLUMN cd_gate_expiries.asked_at IS 'Which request: a gate that was answered and asked about again has another time.';
CREATE INDEX cd_gate_expiries_due ON cd_gate_expiries (due_at, id) WHERE NOT settled;
CREATE TRIGGER cd_gate_expiries_touch BEFORE UPDATE ON cd_gate_expiries FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry')),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END);

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_gates(at timestamptz) RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT organization_id FROM cd_gate_expiries WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_gates(timestamptz) IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_with_due_gates(timestamptz);
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry'));
DROP TABLE cd_gate_expiries;
DROP TABLE cd_environment_approvals;
DROP TABLE cd_rollout_gates;
