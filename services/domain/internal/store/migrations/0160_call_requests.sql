-- What policies decided about calls of Functions other than to permit them at once, and what people answered (D51).

-- +goose Up
CREATE TABLE cd_call_requests (
    organization_id bigint NOT NULL CONSTRAINT cd_call_requests_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    workflow_id     text NOT NULL CONSTRAINT cd_call_requests_run_is_named CHECK (length(workflow_id) BETWEEN 1 AND 500),
    call_id         text NOT NULL CONSTRAINT cd_call_requests_call_is_named CHECK (length(call_id) BETWEEN 1 AND 500),
    rollout_id      bigint,
    function        text NOT NULL CONSTRAINT cd_call_requests_function_is_named CHECK (length(function) BETWEEN 1 AND 300),
    state           text NOT NULL CONSTRAINT cd_call_requests_state_is_known CHECK (state IN ('denied', 'pending', 'approved', 'permitted', 'refused', 'expired', 'withdrawn')),
    policy          text NOT NULL,
    reason          text NOT NULL,
    approver_group  text NOT NULL,
    quorum          integer NOT NULL CONSTRAINT cd_call_requests_quorum_is_bounded CHECK (quorum BETWEEN 0 AND 20),
    requester_may   boolean NOT NULL,
    expires_at      timestamptz,
    decision        jsonb NOT NULL CONSTRAINT cd_call_requests_decision_is_bounded CHECK (length(decision::text) <= 1048576),
    request         jsonb NOT NULL CONSTRAINT cd_call_requests_request_is_bounded CHECK (length(request::text) <= 131072),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_call_requests_call_is_unique UNIQUE (organization_id, call_id),
    CONSTRAINT cd_call_requests_pending_asks CHECK (state <> 'pending' OR (quorum >= 1 AND expires_at IS NOT NULL)),
    CONSTRAINT cd_call_requests_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_call_requests IS 'What policies decided about calls of Functions other than to permit them at once: calls that they denied, and approvals that they require. Rows are kept as the evidence of what programs did, and grow with the history.';
COMMENT ON COLUMN cd_call_requests.call_id IS 'What the engine calls the decision; an answer names it.';
COMMENT ON COLUMN cd_call_requests.state IS 'denied: by policies. pending: people are asked. approved: they have approved, and the engine decides again. permitted: it did. refused, expired: people have refused, or not answered in time. withdrawn: the run has ended.';
COMMENT ON COLUMN cd_call_requests.request IS 'Everything that the policies could ask of, without secrets.';
CREATE INDEX cd_call_requests_by_state ON cd_call_requests (organization_id, id) WHERE state = 'pending';
CREATE INDEX cd_call_requests_by_run ON cd_call_requests (organization_id, workflow_id, id);
CREATE INDEX cd_call_requests_by_rollout ON cd_call_requests (organization_id, rollout_id, id) WHERE rollout_id IS NOT NULL;
CREATE TRIGGER cd_call_requests_touch BEFORE UPDATE ON cd_call_requests FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_call_requests_are_kept BEFORE TRUNCATE ON cd_call_requests EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_call_answers (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    call_request_id bigint NOT NULL,
    approves        boolean NOT NULL,
    reason          text NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_call_answers_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_call_answers_are_of_different_people UNIQUE (organization_id, call_request_id, principal_type, principal_id),
    CONSTRAINT cd_call_answers_request FOREIGN KEY (organization_id, call_request_id) REFERENCES cd_call_requests (organization_id, id)
);
COMMENT ON TABLE cd_call_answers IS 'What people answered to requests of calls; append-only. Rows are kept with the request.';
CREATE TRIGGER cd_call_answers_are_append_only BEFORE UPDATE OR DELETE ON cd_call_answers FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_call_answers_are_kept BEFORE TRUNCATE ON cd_call_answers EXECUTE FUNCTION cd_refuse();

-- +goose Down
DROP TABLE cd_call_answers;
DROP TABLE cd_call_requests;
