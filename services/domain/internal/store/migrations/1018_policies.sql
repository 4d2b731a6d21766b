-- Policies in Cedar, their decisions, and the calls of Functions that wait for one.

-- +goose Up
CREATE TABLE cd_policy_sets (
    organization_id bigint NOT NULL CONSTRAINT cd_policy_sets_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    name            text NOT NULL,
    application_id  bigint,
    environment_id  bigint,
    version         integer NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_policy_sets_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_policy_sets_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_policy_sets_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_policy_sets_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT cd_policy_sets_scope_is_one CHECK (application_id IS NULL OR environment_id IS NULL),
    CONSTRAINT cd_policy_sets_version_counts CHECK (version >= 1)
);
COMMENT ON TABLE cd_policy_sets IS 'Named sets of policies, each of the organization, of one application or of one environment. Rows are kept: they are few, and decisions refer to them.';
COMMENT ON COLUMN cd_policy_sets.version IS 'The latest version, which is in force as its mode says.';
CREATE TRIGGER cd_policy_sets_touch BEFORE UPDATE ON cd_policy_sets FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_policy_versions (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    policy_set_id   bigint NOT NULL,
    version         integer NOT NULL,
    mode            text NOT NULL,
    time_zone       text NOT NULL,
    text            text NOT NULL,
    reason          text NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, policy_set_id, version),
    CONSTRAINT cd_policy_versions_set FOREIGN KEY (organization_id, policy_set_id) REFERENCES cd_policy_sets (organization_id, id),
    CONSTRAINT cd_policy_versions_mode_is_known CHECK (mode IN ('enforce', 'dry_run', 'off')),
    CONSTRAINT cd_policy_versions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_policy_versions_reason_is_given CHECK (reason <> ''),
    CONSTRAINT cd_policy_versions_text_is_bounded CHECK (octet_length(text) >= 1 AND octet_length(text) <= 65536),
    CONSTRAINT cd_policy_versions_version_counts CHECK (version >= 1),
    CONSTRAINT cd_policy_versions_zone_is_named CHECK (length(time_zone) >= 1 AND length(time_zone) <= 100)
);
COMMENT ON TABLE cd_policy_versions IS 'The versions of policy sets; append-only. A change of the mode is a version, too. Rows are kept: decisions refer to them.';
COMMENT ON COLUMN cd_policy_versions.mode IS 'enforce: it counts. dry_run: what it would decide is recorded. off: it is not evaluated.';
COMMENT ON COLUMN cd_policy_versions.time_zone IS 'Where the days and hours of context.time are, such as Europe/Berlin.';
CREATE TRIGGER cd_policy_versions_are_append_only BEFORE UPDATE OR DELETE ON cd_policy_versions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_policy_versions_are_kept BEFORE TRUNCATE ON cd_policy_versions EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_policy_decisions (
    organization_id bigint NOT NULL CONSTRAINT cd_policy_decisions_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL,
    verdict         text NOT NULL,
    decision        jsonb NOT NULL,
    request         jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_policy_decisions_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_policy_decisions_decision_is_bounded CHECK (length((decision)::text) <= 1048576),
    CONSTRAINT cd_policy_decisions_request_is_bounded CHECK (length((request)::text) <= 131072),
    CONSTRAINT cd_policy_decisions_verdict_is_known CHECK (verdict IN ('allow', 'needs_approval', 'deny'))
);
COMMENT ON TABLE cd_policy_decisions IS 'What policies decided about rollouts and their passages, with what they were asked; a decision that repeats the one before it about the same gate is not added. Append-only; rows are kept as the evidence of passages, and grow with the history.';
COMMENT ON COLUMN cd_policy_decisions.decision IS 'The verdict, the digest of the policies, and what each of them decided.';
COMMENT ON COLUMN cd_policy_decisions.gate_id IS 'The passage; empty for the creation of the rollout.';
COMMENT ON COLUMN cd_policy_decisions.request IS 'Everything that the policies could ask of.';
CREATE INDEX cd_policy_decisions_by_rollout ON cd_policy_decisions (organization_id, rollout_id, gate_id, id);
CREATE INDEX cd_policy_decisions_by_time ON cd_policy_decisions (organization_id, created_at, id);
CREATE INDEX cd_policy_decisions_of_rollout ON cd_policy_decisions (organization_id, rollout_id, id);
CREATE TRIGGER cd_policy_decisions_are_append_only BEFORE UPDATE OR DELETE ON cd_policy_decisions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_policy_decisions_are_kept BEFORE TRUNCATE ON cd_policy_decisions EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_call_requests (
    organization_id bigint NOT NULL CONSTRAINT cd_call_requests_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    workflow_id     text NOT NULL,
    call_id         text NOT NULL,
    rollout_id      bigint,
    function        text NOT NULL,
    state           text NOT NULL,
    policy          text NOT NULL,
    reason          text NOT NULL,
    approver_group  text NOT NULL,
    quorum          integer NOT NULL,
    requester_may   boolean NOT NULL,
    expires_at      timestamptz,
    decision        jsonb NOT NULL,
    request         jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_call_requests_call_is_unique UNIQUE (organization_id, call_id),
    CONSTRAINT cd_call_requests_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_call_requests_call_is_named CHECK (length(call_id) >= 1 AND length(call_id) <= 500),
    CONSTRAINT cd_call_requests_decision_is_bounded CHECK (length((decision)::text) <= 1048576),
    CONSTRAINT cd_call_requests_function_is_named CHECK (length(function) >= 1 AND length(function) <= 300),
    CONSTRAINT cd_call_requests_pending_asks CHECK (state <> 'pending' OR quorum >= 1 AND expires_at IS NOT NULL),
    CONSTRAINT cd_call_requests_quorum_is_bounded CHECK (quorum >= 0 AND quorum <= 20),
    CONSTRAINT cd_call_requests_request_is_bounded CHECK (length((request)::text) <= 131072),
    CONSTRAINT cd_call_requests_run_is_named CHECK (length(workflow_id) >= 1 AND length(workflow_id) <= 500),
    CONSTRAINT cd_call_requests_state_is_known
        CHECK (state IN ('denied', 'pending', 'approved', 'permitted', 'refused', 'expired', 'withdrawn'))
);
COMMENT ON TABLE cd_call_requests IS 'What policies decided about calls of Functions other than to permit them at once: calls that they denied, and approvals that they require. Rows are kept as the evidence of what programs did, and grow with the history.';
COMMENT ON COLUMN cd_call_requests.call_id IS 'What the engine calls the decision; an answer names it.';
COMMENT ON COLUMN cd_call_requests.request IS 'Everything that the policies could ask of, without secrets.';
COMMENT ON COLUMN cd_call_requests.state IS 'denied: by policies. pending: people are asked. approved: they have approved, and the engine decides again. permitted: it did. refused, expired: people have refused, or not answered in time. withdrawn: the run has ended.';
CREATE INDEX cd_call_requests_by_rollout ON cd_call_requests (organization_id, rollout_id, id) WHERE rollout_id IS NOT NULL;
CREATE INDEX cd_call_requests_by_run ON cd_call_requests (organization_id, workflow_id, id);
CREATE INDEX cd_call_requests_by_state ON cd_call_requests (organization_id, id) WHERE state = 'pending';
CREATE TRIGGER cd_call_requests_are_kept BEFORE TRUNCATE ON cd_call_requests EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_call_requests_touch BEFORE UPDATE ON cd_call_requests FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_call_answers (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    call_request_id bigint NOT NULL,
    approves        boolean NOT NULL,
    reason          text NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_call_answers_are_of_different_people UNIQUE (organization_id, call_request_id, principal_type, principal_id),
    CONSTRAINT cd_call_answers_request FOREIGN KEY (organization_id, call_request_id) REFERENCES cd_call_requests (organization_id, id),
    CONSTRAINT cd_call_answers_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_call_answers IS 'What people answered to requests of calls; append-only. Rows are kept with the request.';
CREATE TRIGGER cd_call_answers_are_append_only BEFORE UPDATE OR DELETE ON cd_call_answers FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_call_answers_are_kept BEFORE TRUNCATE ON cd_call_answers EXECUTE FUNCTION cd_refuse();

ALTER TABLE cd_rollout_policies ADD CONSTRAINT cd_rollout_policies_version FOREIGN KEY (organization_id, policy_set_id,
    version) REFERENCES cd_policy_versions (organization_id, policy_set_id, version);

-- +goose Down
ALTER TABLE cd_rollout_policies DROP CONSTRAINT cd_rollout_policies_version;
DROP TABLE cd_call_answers;
DROP TABLE cd_call_requests;
DROP TABLE cd_policy_decisions;
DROP TABLE cd_policy_versions;
DROP TABLE cd_policy_sets;
