-- Calls to the workflow engine that are still to be made.

-- +goose Up
CREATE TABLE cd_handoffs (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_handoffs_organization REFERENCES cd_organizations (id),
    kind            text NOT NULL,
    workflow_id     text NOT NULL,
    subject_kind    text NOT NULL,
    subject_id      bigint NOT NULL,
    program         text,
    driver_digest   text,
    inputs          jsonb,
    reason          text NOT NULL DEFAULT '',
    state           text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    due_at          timestamptz NOT NULL,
    error           text NOT NULL DEFAULT '',
    traceparent     text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_handoffs_once_per_workflow UNIQUE (organization_id, workflow_id, kind),
    CONSTRAINT cd_handoffs_driver_bundle FOREIGN KEY (organization_id, driver_digest) REFERENCES cd_driver_bundles (organization_id, digest),
    CONSTRAINT cd_handoffs_kind_is_known CHECK (kind IN ('start', 'cancel')),
    CONSTRAINT cd_handoffs_program_is_known CHECK (program IN ('deploy', 'onboarding', 'application_environment_setup', 'preview', 'check')),
    CONSTRAINT cd_handoffs_start_is_complete
        CHECK ((kind = 'start') = (program IS NOT NULL AND driver_digest IS NOT NULL AND inputs IS NOT NULL)),
    CONSTRAINT cd_handoffs_state_is_known CHECK (state IN ('pending', 'done', 'failed', 'withdrawn')),
    CONSTRAINT cd_handoffs_subject_is_known
        CHECK (subject_kind IN ('rollout', 'environment', 'application_environment', 'preview', 'check')),
    CONSTRAINT cd_handoffs_traceparent_is_given CHECK (traceparent <> ''),
    CONSTRAINT cd_handoffs_workflow_is_given CHECK (workflow_id <> '')
);
COMMENT ON COLUMN cd_handoffs.due_at IS 'When it is to be tried, or, after a claim, tried again should the claimer be gone.';
COMMENT ON COLUMN cd_handoffs.error IS 'What the last attempt met; for operators.';
CREATE INDEX cd_handoffs_due ON cd_handoffs (due_at, id) WHERE state = 'pending';
CREATE INDEX cd_handoffs_settled ON cd_handoffs (organization_id, updated_at) WHERE state <> 'pending';
CREATE TRIGGER cd_handoffs_touch BEFORE UPDATE ON cd_handoffs FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_handoffs(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_handoffs WHERE state = 'pending' AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_handoffs IS 'There is one dispatcher for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_load(OUT handoffs_due bigint, OUT handoffs_oldest_seconds double precision, OUT gates_waiting bigint,
    OUT gates_oldest_seconds double precision) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(h.created_at)), 0) INTO handoffs_due, handoffs_oldest_seconds
    FROM cd_handoffs h WHERE h.state = 'pending';
    -- A gate is asked for once more after a retry: its latest request counts.
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(asked.created_at)), 0) INTO gates_waiting, gates_oldest_seconds
    FROM cd_rollouts r
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (t.gate_id) t.id, t.gate_id, t.created_at FROM cd_rollout_transitions t
        WHERE t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'request_approval' ORDER BY t.gate_id, t.id DESC
    ) asked
    LEFT JOIN cd_rollout_gates g ON g.organization_id = r.organization_id AND g.rollout_id = r.id AND g.gate_id = asked.gate_id
    WHERE r.state IN ('pending', 'in_progress', 'paused')
      AND NOT EXISTS (
          SELECT FROM cd_rollout_transitions a
          WHERE a.organization_id = r.organization_id AND a.rollout_id = r.id AND a.id > asked.id
            AND (a.event IN ('reject', 'expire') AND a.gate_id = asked.gate_id OR a.event = 'abort'))
      AND (SELECT count(*) FROM cd_rollout_transitions a
           WHERE a.organization_id = r.organization_id AND a.rollout_id = r.id AND a.id > asked.id AND a.gate_id = asked.gate_id AND a.event = 'approve'
             AND (g.also IS NULL OR a.conditions -> 0 ->> 'outcome' = 'approved'))
          < CASE WHEN g.also IS NULL THEN COALESCE(g.quorum, 1) ELSE 1 END;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cd_load;
DROP FUNCTION cd_organizations_with_due_handoffs;
DROP TABLE cd_handoffs;
