-- Passages: what keeps a rollout from going on.

-- +goose Up
CREATE TABLE cd_rollout_gates (
    id                    bigint GENERATED ALWAYS AS IDENTITY,
    organization_id       bigint NOT NULL CONSTRAINT cd_rollout_gates_organization REFERENCES cd_organizations (id),
    rollout_id            bigint NOT NULL,
    gate_id               text NOT NULL,
    quorum                integer NOT NULL,
    approver_group        text NOT NULL DEFAULT '',
    requester_may_approve boolean NOT NULL,
    expires_after_seconds integer NOT NULL DEFAULT 0,
    on_expiry             text NOT NULL DEFAULT 'reject',
    reason                text NOT NULL DEFAULT '',
    own                   boolean NOT NULL DEFAULT false,
    before_environment_id bigint,
    also                  jsonb,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_gates_gate_is_unique UNIQUE (organization_id, rollout_id, gate_id),
    CONSTRAINT cd_rollout_gates_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_gates_gate_is_named CHECK (gate_id <> ''),
    CONSTRAINT cd_rollout_gates_outcome_is_known CHECK (on_expiry IN ('reject', 'approve')),
    CONSTRAINT cd_rollout_gates_quorum_counts CHECK (quorum >= 1 AND quorum <= 20),
    CONSTRAINT cd_rollout_gates_requirements_are_a_list
        CHECK (also IS NULL OR jsonb_typeof(also) = 'array' AND jsonb_array_length(also) > 0),
    CONSTRAINT cd_rollout_gates_time_is_bounded CHECK (expires_after_seconds >= 0 AND expires_after_seconds <= 2592000)
);
COMMENT ON COLUMN cd_rollout_gates.also IS 'All that has to be met where that is several requirements, as a list of {group, quorum}; without a group it counts people. approver_group is (several) then, a group that nobody is in; rows of an earlier release have the first requirement there and in quorum. Null for one requirement.';
COMMENT ON COLUMN cd_rollout_gates.approver_group IS 'Those who decide belong to it; empty for anybody.';
COMMENT ON COLUMN cd_rollout_gates.before_environment_id IS 'The environment that comes after a step between environments; null for every other gate, and for a step after the last environment.';
COMMENT ON COLUMN cd_rollout_gates.expires_after_seconds IS '0: the question stands until the rollout ends.';
COMMENT ON COLUMN cd_rollout_gates.own IS 'A program requested it; neither the pipeline nor an environment did.';
COMMENT ON COLUMN cd_rollout_gates.reason IS 'What the people who decide are shown.';
CREATE TRIGGER cd_rollout_gates_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_gates FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_gates_are_kept BEFORE TRUNCATE ON cd_rollout_gates EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_gate_expiries (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_gate_expiries_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL,
    asked_at        timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    settled         boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_gate_expiries_once_per_request UNIQUE (organization_id, rollout_id, gate_id, asked_at),
    CONSTRAINT cd_gate_expiries_gate FOREIGN KEY (organization_id, rollout_id, gate_id)
        REFERENCES cd_rollout_gates (organization_id, rollout_id, gate_id)
);
COMMENT ON COLUMN cd_gate_expiries.asked_at IS 'Which request: a gate that was answered and asked about again has another time.';
CREATE INDEX cd_gate_expiries_due ON cd_gate_expiries (due_at, id) WHERE NOT settled;
CREATE TRIGGER cd_gate_expiries_touch BEFORE UPDATE ON cd_gate_expiries FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_freezes (
    organization_id bigint NOT NULL CONSTRAINT cd_freezes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    tiers           text[] NOT NULL,
    environment_ids bigint[] NOT NULL,
    application_ids bigint[] NOT NULL,
    rollbacks       boolean NOT NULL,
    reason          text NOT NULL,
    starts_at       timestamptz NOT NULL,
    ends_at         timestamptz NOT NULL,
    bounded_from    timestamptz NOT NULL,
    ended_at        timestamptz,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_freezes_applications_are_few CHECK (cardinality(application_ids) <= 100),
    CONSTRAINT cd_freezes_end_comes_last CHECK (ends_at > starts_at),
    CONSTRAINT cd_freezes_environments_are_few CHECK (cardinality(environment_ids) <= 100),
    CONSTRAINT cd_freezes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_freezes_reason_is_given CHECK (reason <> ''),
    CONSTRAINT cd_freezes_tiers_are_known CHECK (tiers <@ ARRAY['development', 'qa', 'staging', 'production']),
    CONSTRAINT cd_freezes_time_is_bounded CHECK (ends_at <= (bounded_from + '30 days'::interval))
);
COMMENT ON TABLE cd_freezes IS 'Passages within the scope wait while one is in force: from starts_at until ends_at, or until it was ended. An empty list of the scope limits nothing. Rows are kept: they are few, and journals refer to them.';
COMMENT ON COLUMN cd_freezes.bounded_from IS 'When it starts, or when its end was chosen last: the end is at most 30 days behind it.';
COMMENT ON COLUMN cd_freezes.ended_at IS 'When it was ended before its time; null if it was not.';
COMMENT ON COLUMN cd_freezes.rollbacks IS 'It stops rollbacks, too.';
CREATE INDEX cd_freezes_in_force ON cd_freezes (organization_id, ends_at) WHERE ended_at IS NULL;
CREATE TRIGGER cd_freezes_touch BEFORE UPDATE ON cd_freezes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_vetoes (
    organization_id bigint NOT NULL CONSTRAINT cd_vetoes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    version_id      bigint,
    version_set_id  bigint,
    reason          text NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    lifted_at       timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_vetoes_version FOREIGN KEY (organization_id, version_id) REFERENCES cd_versions (organization_id, id),
    CONSTRAINT cd_vetoes_version_set FOREIGN KEY (organization_id, version_set_id) REFERENCES cd_version_sets (organization_id, id),
    CONSTRAINT cd_vetoes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_vetoes_reason_is_given CHECK (reason <> ''),
    CONSTRAINT cd_vetoes_subject_is_one CHECK ((version_id IS NULL) <> (version_set_id IS NULL))
);
COMMENT ON TABLE cd_vetoes IS 'Versions and version sets that are never deployed, until the veto is lifted. Rows are kept.';
CREATE UNIQUE INDEX cd_vetoes_of_version ON cd_vetoes (organization_id, version_id) WHERE lifted_at IS NULL AND version_id IS NOT NULL;
CREATE UNIQUE INDEX cd_vetoes_of_version_set ON cd_vetoes (organization_id, version_set_id)
    WHERE lifted_at IS NULL AND version_set_id IS NOT NULL;
CREATE TRIGGER cd_vetoes_touch BEFORE UPDATE ON cd_vetoes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_passage_stops (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    gate_id         text NOT NULL,
    kind            text NOT NULL,
    control_id      bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, rollout_id, gate_id, kind, control_id),
    CONSTRAINT cd_passage_stops_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_passage_stops_gate_is_named CHECK (gate_id <> ''),
    CONSTRAINT cd_passage_stops_kind_is_known CHECK (kind IN ('freeze', 'veto', 'pin', 'policy'))
);
COMMENT ON TABLE cd_passage_stops IS 'Which requested passages wait for the end of which freeze, veto or pin. Rows end with that, or with the rollout.';
COMMENT ON COLUMN cd_passage_stops.control_id IS 'The freeze, the veto, or the environment that is pinned; 0 for policies.';
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
COMMENT ON TABLE cd_passage_reviews IS 'Rollouts whose requested passages are evaluated again at a time. A row is deleted when that was done. No foreign key: adding a row must not wait for the rollout''s lock.';
CREATE INDEX cd_passage_reviews_due ON cd_passage_reviews (due_at, organization_id, id);

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_gates(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_gate_expiries WHERE NOT settled AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_gates IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_reviews(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_passage_reviews WHERE due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_reviews IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_review_stopped(stopping text, control bigint, at timestamptz) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH stopped AS (
        DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND kind = stopping AND control_id = control RETURNING organization_id, rollout_id
    ), due AS (
        INSERT INTO cd_passage_reviews (organization_id, rollout_id, due_at) SELECT DISTINCT organization_id, rollout_id, at FROM stopped
        ON CONFLICT DO NOTHING RETURNING 1
    )
    SELECT count(*) FROM due
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_review_stopped IS 'What a control has stopped is evaluated again, and waits for it no longer.';

-- +goose StatementBegin
CREATE FUNCTION cd_settle_reviews(done bigint[]) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_passage_reviews WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND id = ANY(done) RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_settle_reviews IS 'Reviews are no record: what came of them is in the journals.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_stops(rollout bigint, keep text[]) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM cd_passage_stops WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND rollout_id = rollout AND NOT (gate_id = ANY(keep)) RETURNING 1) SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_stops IS 'Stops are no record: the journal of the rollout has them.';

-- +goose Down
DROP FUNCTION cd_forget_stops;
DROP FUNCTION cd_settle_reviews;
DROP FUNCTION cd_review_stopped;
DROP FUNCTION cd_organizations_with_due_reviews;
DROP FUNCTION cd_organizations_with_due_gates;
DROP TABLE cd_passage_reviews;
DROP TABLE cd_passage_stops;
DROP TABLE cd_vetoes;
DROP TABLE cd_freezes;
DROP TABLE cd_gate_expiries;
DROP TABLE cd_rollout_gates;
