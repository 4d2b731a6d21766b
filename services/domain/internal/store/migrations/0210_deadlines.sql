-- Deadlines (D59): how long a rollout, and each of its environments, may take, as pinned when it was made; and how long an abort may take
-- that is to end it. They pass by the clock of the service: no program has a part in it.

-- +goose Up
CREATE TABLE cd_rollout_deadlines (
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_deadlines_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    rollout_id      bigint NOT NULL,
    kind            text NOT NULL CONSTRAINT cd_rollout_deadlines_kind_is_known CHECK (kind IN ('rollout', 'environment', 'abort')),
    environment_id  bigint,
    gate_id         text NOT NULL DEFAULT '',
    seconds         integer NOT NULL CONSTRAINT cd_rollout_deadlines_seconds_are_bounded CHECK (seconds BETWEEN 1 AND 2592000),
    action          text NOT NULL CONSTRAINT cd_rollout_deadlines_action_is_known CHECK (action IN ('fail', 'abort', 'cancel')),
    counts_waiting  boolean NOT NULL,
    principal_type  text NOT NULL DEFAULT 'system' CONSTRAINT cd_rollout_deadlines_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint,
    reason          text NOT NULL DEFAULT '',
    started_at      timestamptz,
    due_at          timestamptz,
    outcome         text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_deadlines_outcome_is_known CHECK (outcome IN ('', 'met', 'failed', 'aborted', 'cancelled', 'withdrawn')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_deadlines_environment_has_a_gate CHECK ((kind = 'environment') = (environment_id IS NOT NULL) AND (kind = 'environment') = (gate_id <> '')),
    CONSTRAINT cd_rollout_deadlines_runs_before_it_is_due CHECK (due_at IS NULL OR started_at IS NOT NULL)
);
CREATE UNIQUE INDEX cd_rollout_deadlines_once ON cd_rollout_deadlines (organization_id, rollout_id, kind, gate_id) WHERE outcome = '' OR kind <> 'abort';
CREATE INDEX cd_rollout_deadlines_by_rollout ON cd_rollout_deadlines (organization_id, rollout_id);
CREATE INDEX cd_rollout_deadlines_due ON cd_rollout_deadlines (due_at, id) WHERE outcome = '' AND due_at IS NOT NULL;
CREATE INDEX cd_rollout_deadlines_due_in ON cd_rollout_deadlines (organization_id, due_at, id) WHERE outcome = '' AND due_at IS NOT NULL;
COMMENT ON TABLE cd_rollout_deadlines IS 'How long a rollout, an environment of it, or an abort that is to end it, may take. Rows are kept.';
COMMENT ON COLUMN cd_rollout_deadlines.gate_id IS 'The name of the environment, which is that of its entrance; empty for other kinds.';
COMMENT ON COLUMN cd_rollout_deadlines.action IS 'What becomes of the rollout when it passes.';
COMMENT ON COLUMN cd_rollout_deadlines.counts_waiting IS 'Whether time counts during which the rollout waits for people.';
COMMENT ON COLUMN cd_rollout_deadlines.principal_type IS 'Who asked for what happens when it passes; system for the pipeline.';
COMMENT ON COLUMN cd_rollout_deadlines.reason IS 'The reason of the principal.';
COMMENT ON COLUMN cd_rollout_deadlines.started_at IS 'Since when it runs: an environment from the grant of its entrance. A retry begins anew.';
COMMENT ON COLUMN cd_rollout_deadlines.due_at IS 'When it is looked at: never later than it passes. Null before it runs, and while the rollout waits for people and that does not count.';
COMMENT ON COLUMN cd_rollout_deadlines.outcome IS 'Empty while it is open.';
CREATE TRIGGER cd_rollout_deadlines_touch BEFORE UPDATE ON cd_rollout_deadlines FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_run_deadlines() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.event = 'retry' THEN
        UPDATE cd_rollout_deadlines d SET outcome = '',
            started_at = CASE WHEN d.kind = 'rollout' THEN NEW.created_at END,
            due_at = CASE WHEN d.kind = 'rollout' THEN NEW.created_at + make_interval(secs => d.seconds) END
        WHERE d.organization_id = NEW.organization_id AND d.rollout_id = NEW.rollout_id AND d.kind <> 'abort';
        UPDATE cd_rollout_deadlines d SET outcome = 'withdrawn', due_at = NULL
        WHERE d.organization_id = NEW.organization_id AND d.rollout_id = NEW.rollout_id AND d.kind = 'abort' AND d.outcome = '';
        RETURN NULL;
    END IF;
    IF NEW.event = 'pass_gate' THEN
        UPDATE cd_rollout_deadlines d SET started_at = NEW.created_at, due_at = NEW.created_at + make_interval(secs => d.seconds)
        WHERE d.organization_id = NEW.organization_id AND d.rollout_id = NEW.rollout_id AND d.gate_id = NEW.gate_id AND d.started_at IS NULL AND d.outcome = '';
    END IF;
    -- Something may have ended for which a deadline stood still.
    UPDATE cd_rollout_deadlines d SET due_at = NEW.created_at
    WHERE d.organization_id = NEW.organization_id AND d.rollout_id = NEW.rollout_id AND d.started_at IS NOT NULL AND d.due_at IS NULL AND d.outcome = '';
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_run_deadlines() IS 'The record starts deadlines, so that they start whichever release writes it.';
CREATE TRIGGER cd_rollout_transitions_run_deadlines AFTER INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (NEW.event IN ('pass_gate', 'retry', 'resume', 'approve', 'expire', 'break_glass', 'bypass_freeze'))
    EXECUTE FUNCTION cd_run_deadlines();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_deadlines(at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_rollout_deadlines WHERE outcome = '' AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_deadlines(timestamptz) IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_with_due_deadlines(timestamptz);
DROP TRIGGER cd_rollout_transitions_run_deadlines ON cd_rollout_transitions;
DROP FUNCTION cd_run_deadlines();
DROP TABLE cd_rollout_deadlines;
