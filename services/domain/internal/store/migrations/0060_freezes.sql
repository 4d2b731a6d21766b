-- What stops passages besides approvals (D49): freezes, vetoes of versions, pins of environments; which passages they have stopped; and the
-- rollouts that are to be evaluated again, now or at a time.

-- +goose Up
CREATE TABLE cd_freezes (
    organization_id bigint NOT NULL CONSTRAINT cd_freezes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    tiers           text[] NOT NULL CONSTRAINT cd_freezes_tiers_are_known CHECK (tiers <@ ARRAY['development', 'qa', 'staging', 'production']),
    environment_ids bigint[] NOT NULL CONSTRAINT cd_freezes_environments_are_few CHECK (cardinality(environment_ids) <= 100),
    application_ids bigint[] NOT NULL CONSTRAINT cd_freezes_applications_are_few CHECK (cardinality(application_ids) <= 100),
    rollbacks       boolean NOT NULL,
    reason          text NOT NULL CONSTRAINT cd_freezes_reason_is_given CHECK (reason <> ''),
    starts_at       timestamptz NOT NULL,
    ends_at         timestamptz NOT NULL,
    bounded_from    timestamptz NOT NULL,
    ended_at        timestamptz,
    principal_type  text NOT NULL CONSTRAINT cd_freezes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_freezes_end_comes_last CHECK (ends_at > starts_at),
    CONSTRAINT cd_freezes_time_is_bounded CHECK (ends_at <= bounded_from + interval '30 days')
);
COMMENT ON TABLE cd_freezes IS 'Passages within the scope wait while one is in force: from starts_at until ends_at, or until it was ended. An empty list of the scope limits nothing. Rows are kept: they are few, and journals refer to them.';
COMMENT ON COLUMN cd_freezes.rollbacks IS 'It stops rollbacks, too.';
COMMENT ON COLUMN cd_freezes.bounded_from IS 'When it starts, or when its end was chosen last: the end is at most 30 days behind it.';
COMMENT ON COLUMN cd_freezes.ended_at IS 'When somebody ended it before its time; null for nobody.';
CREATE INDEX cd_freezes_in_force ON cd_freezes (organization_id, ends_at) WHERE ended_at IS NULL;
CREATE TRIGGER cd_freezes_touch BEFORE UPDATE ON cd_freezes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_vetoes (
    organization_id bigint NOT NULL CONSTRAINT cd_vetoes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    version_id      bigint,
    version_set_id  bigint,
    reason          text NOT NULL CONSTRAINT cd_vetoes_reason_is_given CHECK (reason <> ''),
    principal_type  text NOT NULL CONSTRAINT cd_vetoes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    lifted_at       timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_vetoes_subject_is_one CHECK ((version_id IS NULL) <> (version_set_id IS NULL)),
    CONSTRAINT cd_vetoes_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_vetoes_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id)
);
COMMENT ON TABLE cd_vetoes IS 'Versions and version sets that are never deployed, until the veto is lifted. Rows are kept.';
CREATE UNIQUE INDEX cd_vetoes_of_version ON cd_vetoes (organization_id, version_id) WHERE lifted_at IS NULL AND version_id IS NOT NULL;
CREATE UNIQUE INDEX cd_vetoes_of_version_set ON cd_vetoes (organization_id, version_set_id) WHERE lifted_at IS NULL AND version_set_id IS NOT NULL;
CREATE TRIGGER cd_vetoes_touch BEFORE UPDATE ON cd_vetoes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_environment_pins (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_environment_pins_organization REFERENCES cd_organizations (id),
    environment_id  bigint NOT NULL,
    pinned          boolean NOT NULL,
    reason          text NOT NULL CONSTRAINT cd_environment_pins_reason_is_given CHECK (reason <> '' OR NOT pinned),
    since           timestamptz NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_environment_pins_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, environment_id),
    CONSTRAINT cd_environment_pins_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id)
);
COMMENT ON TABLE cd_environment_pins IS 'Environments in which only people change what runs. No row, or one that is not pinned: automation may, too.';
CREATE TRIGGER cd_environment_pins_touch BEFORE UPDATE ON cd_environment_pins FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_passage_stops (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL CONSTRAINT cd_passage_stops_gate_is_named CHECK (gate_id <> ''),
    kind            text NOT NULL CONSTRAINT cd_passage_stops_kind_is_known CHECK (kind IN ('freeze', 'veto', 'pin')),
    control_id      bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, gate_id, kind, control_id),
    CONSTRAINT cd_passage_stops_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_passage_stops IS 'Which requested passages wait for the end of which freeze, veto or pin. Rows end with that, or with the rollout.';
COMMENT ON COLUMN cd_passage_stops.control_id IS 'The freeze, the veto, or the environment that is pinned.';
CREATE INDEX cd_passage_stops_by_control ON cd_passage_stops (organization_id, kind, control_id);

CREATE TABLE cd_passage_reviews (
    organization_id bigint NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    rollout_id      bigint NOT NULL,
    due_at          timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_passage_reviews_once UNIQUE (organization_id, rollout_id, due_at)
);
COMMENT ON TABLE cd_passage_reviews IS 'Rollouts whose requested passages are evaluated again at a time. A row ends when that was done. No foreign key: whoever adds a row must not wait for the rollout''s lock.';
CREATE INDEX cd_passage_reviews_due ON cd_passage_reviews (due_at, organization_id, id);

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_reviews(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_passage_reviews WHERE due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_reviews(timestamptz) IS 'There is one worker for all organizations.';

-- The service's role deletes nothing of an organization by itself. These delete what is no record, of the organization that the transaction
-- has entered.
-- +goose StatementBegin
CREATE FUNCTION cd_settle_reviews(done bigint[]) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_passage_reviews WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY(done) RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settle_reviews(bigint[]) IS 'Reviews are no record: what came of them is in the journals.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_stops(rollout bigint, keep text[]) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND rollout_id = rollout AND NOT (gate_id = ANY(keep)) RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_stops(bigint, text[]) IS 'Stops are no record: the journal of the rollout has them.';

-- +goose StatementBegin
CREATE FUNCTION cd_review_stopped(stopping text, control bigint, at timestamptz) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    WITH stopped AS (
        DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND kind = stopping AND control_id = control RETURNING organization_id, rollout_id
    ), due AS (
        INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) SELECT DISTINCT organization_id, rollout_id, at FROM stopped
        ON CONFLICT DO NOTHING RETURNING 1
    )
    SELECT count(*) FROM due
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_review_stopped(text, bigint, timestamptz) IS 'What a control has stopped is evaluated again, and waits for it no longer.';

ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 511);
COMMENT ON COLUMN cd_access_tokens.scopes IS 'Bits: 1 read 2 deploy 4 approve 8 configure 16 administer 32 break glass 64 freeze 128 bypass 256 report. What it is good for, as far as the member''s role allows it too.';

ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze')),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'stop_passage')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END),
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze')),
    ADD CONSTRAINT cd_rollout_transitions_person_bypasses CHECK (event <> 'bypass_freeze' OR principal_type = 'user' AND principal_id IS NOT NULL AND reason <> '');
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, which weights the program of a requested one will skip, what stops one, or which freezes are bypassed.';
CREATE INDEX cd_rollout_transitions_bypasses ON cd_rollout_transitions (created_at) WHERE event = 'bypass_freeze';

-- +goose StatementBegin
CREATE FUNCTION cd_freeze_bypasses() RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE times bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*) INTO times FROM cd_rollout_transitions WHERE event = 'bypass_freeze';
    PERFORM set_config('lockstep.across', '', true);
    RETURN times;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_freeze_bypasses() IS 'For the metrics of the whole installation: how often a freeze was bypassed for a rollout.';

-- +goose Down
DROP FUNCTION cd_freeze_bypasses();
DROP INDEX cd_rollout_transitions_bypasses;
-- Rows with the newer verbs stay: a journal loses nothing. The older code refuses to make more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_person_bypasses,
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate')) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback')) NOT VALID;
ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 63) NOT VALID;
COMMENT ON COLUMN cd_access_tokens.scopes IS 'Bits: 1 read 2 deploy 4 approve 8 configure 16 administer 32 break glass. What it is good for, as far as the member''s role allows it too.';
DROP FUNCTION cd_review_stopped(text, bigint, timestamptz);
DROP FUNCTION cd_forget_stops(bigint, text[]);
DROP FUNCTION cd_settle_reviews(bigint[]);
DROP FUNCTION cd_organizations_with_due_reviews(timestamptz);
DROP TABLE cd_passage_reviews;
DROP TABLE cd_passage_stops;
DROP TABLE cd_environment_pins;
DROP TABLE cd_vetoes;
DROP TABLE cd_freezes;
