-- Gates that a deployment or rollout was at are told even when the word comes after its end. What is under a failed rollout is
-- closed when no more words can be under way. What an application does at a failure, and about a newer version set.

-- +goose Up
ALTER TABLE cd_deployment_transitions
    DROP CONSTRAINT cd_deployment_transitions_path_is_legal,
    ADD CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 0
        WHEN event IN ('reach_gate', 'pass_gate') THEN from_state >= 1 AND to_state = from_state
        ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5))
    END);
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_terminal_asks_nothing,
    ADD CONSTRAINT cd_rollout_transitions_terminal_asks_nothing CHECK (from_state IS NULL OR from_state < 3 OR event = 'reach_gate');

CREATE TABLE cd_rollout_closings (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_closings_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    reason          text NOT NULL DEFAULT '',
    due_at          timestamptz NOT NULL,
    settled         boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_closings_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_closings_once_per_rollout UNIQUE (organization_id, rollout_id)
);
COMMENT ON TABLE cd_rollout_closings IS 'Events come in any order: a rollout whose end was heard of before everything under it waits here for the rest, for a while.';
COMMENT ON COLUMN cd_rollout_closings.reason IS 'Why it fails, should it not have ended by itself until then.';
CREATE INDEX cd_rollout_closings_due ON cd_rollout_closings (due_at, id) WHERE NOT settled;
CREATE TRIGGER cd_rollout_closings_touch BEFORE UPDATE ON cd_rollout_closings FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_application_policies
    ADD COLUMN rollback_in_full boolean NOT NULL DEFAULT false,
    ADD COLUMN on_failure text NOT NULL DEFAULT 'stop' CONSTRAINT cd_application_policies_failure_is_known CHECK (on_failure IN ('stop', 'abort', 'rollback')),
    ADD COLUMN on_newer text NOT NULL DEFAULT 'refuse' CONSTRAINT cd_application_policies_newer_is_known CHECK (on_newer IN ('refuse', 'queue', 'supersede'));
COMMENT ON COLUMN cd_application_policies.rollback_in_full IS 'A way back is promoted at once, without the gates by weight (D14).';
COMMENT ON COLUMN cd_application_policies.on_failure IS 'What happens to the deployments under way: left as they are (E67), aborted, or rolled back at once.';
COMMENT ON COLUMN cd_application_policies.on_newer IS 'What becomes of a newer version set while a rollout is active.';

CREATE TABLE cd_queued_rollouts (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_queued_rollouts_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_queued_rollouts_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint,
    reason          text NOT NULL DEFAULT '',
    requested_at    timestamptz NOT NULL,
    state           smallint NOT NULL DEFAULT 0 CONSTRAINT cd_queued_rollouts_state_is_known CHECK (state BETWEEN 0 AND 2),
    outcome         text NOT NULL DEFAULT '',
    made_rollout_id bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_queued_rollouts_version_set FOREIGN KEY (organization_id, application_id, version_set_id) REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_queued_rollouts_made_rollout FOREIGN KEY (organization_id, made_rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_queued_rollouts_done_has_made CHECK ((state = 1) = (made_rollout_id IS NOT NULL)),
    CONSTRAINT cd_queued_rollouts_dropped_says_why CHECK ((state = 2) = (outcome <> ''))
);
COMMENT ON COLUMN cd_queued_rollouts.state IS '0 waiting 1 begun 2 dropped (outcome says why)';
CREATE UNIQUE INDEX cd_queued_rollouts_one_waits_per_application ON cd_queued_rollouts (organization_id, application_id) WHERE state = 0;
CREATE TRIGGER cd_queued_rollouts_touch BEFORE UPDATE ON cd_queued_rollouts FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_closings(at timestamptz) RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT organization_id FROM cd_rollout_closings WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_closings(timestamptz) IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_free_queue() RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    SELECT q.organization_id FROM cd_queued_rollouts q
    WHERE q.state = 0 AND NOT EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = q.organization_id AND r.application_id = q.application_id AND r.state IN (0, 1, 2))
    GROUP BY q.organization_id ORDER BY min(q.requested_at)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_free_queue() IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_with_free_queue();
DROP FUNCTION cd_organizations_with_due_closings(timestamptz);
DROP TABLE cd_queued_rollouts;
ALTER TABLE cd_application_policies DROP COLUMN on_newer, DROP COLUMN on_failure, DROP COLUMN rollback_in_full;
DROP TABLE cd_rollout_closings;
-- What was told late under the wider rules stays true, so the narrower ones are for new rows only.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_terminal_asks_nothing,
    ADD CONSTRAINT cd_rollout_transitions_terminal_asks_nothing CHECK (from_state IS NULL OR from_state < 3) NOT VALID;
ALTER TABLE cd_deployment_transitions
    DROP CONSTRAINT cd_deployment_transitions_path_is_legal,
    ADD CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 0
        WHEN event IN ('reach_gate', 'pass_gate') THEN from_state = 1 AND to_state = 1
        ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5))
    END) NOT VALID;
