-- The journals of rollouts, rollout environments and deployments, and the chain of blocks that covers all journals.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_keep_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cd_rollouts SET asked = true WHERE organization_id = NEW.organization_id AND id = NEW.rollout_id AND NOT asked;
    RETURN NULL;
END $$;
-- +goose StatementEnd

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
COMMENT ON FUNCTION cd_run_deadlines IS 'The record starts deadlines, so that they start whichever release writes it.';

CREATE TABLE cd_rollout_transitions (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions'),
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_transitions_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    from_state      text,
    to_state        text NOT NULL,
    event           text NOT NULL,
    gate_id         text,
    principal_type  text NOT NULL,
    principal_id    bigint,
    reason          text,
    triggered_by    text,
    conditions      jsonb,
    breach          boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_transitions_subject FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_transitions_breach_is_a_failure CHECK (NOT breach OR event = 'fail'),
    CONSTRAINT cd_rollout_transitions_conditions_are_of_passages
        CHECK (conditions IS NULL OR breach OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze', 'approve')),
    CONSTRAINT cd_rollout_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_rollout_transitions_gate_is_named
        CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage',
        'pass_gate', 'stop_passage', 'start_job', 'end_job')) = (gate_id IS NOT NULL)),
    CONSTRAINT cd_rollout_transitions_state_is_known CHECK (to_state IN ('pending', 'in_progress', 'paused', 'completed', 'failed', 'cancelled')),
    CONSTRAINT cd_rollout_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 'pending'
        ELSE from_state = to_state OR (from_state, to_state) IN (
            ('pending', 'in_progress'), ('pending', 'failed'), ('pending', 'cancelled'),
            ('in_progress', 'paused'), ('in_progress', 'completed'), ('in_progress', 'failed'), ('in_progress', 'cancelled'),
            ('paused', 'in_progress'), ('paused', 'failed'), ('paused', 'cancelled'))
        END),
    CONSTRAINT cd_rollout_transitions_person_breaks_the_glass
        CHECK (event <> 'break_glass' OR principal_type = 'user' AND principal_id IS NOT NULL AND reason <> ''),
    CONSTRAINT cd_rollout_transitions_person_bypasses
        CHECK (event <> 'bypass_freeze' OR principal_type = 'user' AND principal_id IS NOT NULL AND reason <> ''),
    CONSTRAINT cd_rollout_transitions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip',
            'break_glass', 'stop_rollback', 'stop_passage', 'bypass_freeze', 'start_job', 'end_job') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
        END),
    CONSTRAINT cd_rollout_transitions_terminal_asks_nothing
        CHECK (from_state IS NULL OR from_state NOT IN ('completed', 'failed', 'cancelled') OR event IN ('reach_gate', 'stop_rollback')),
    CONSTRAINT cd_rollout_transitions_verb_is_known
        CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate',
        'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback',
        'stop_passage', 'bypass_freeze', 'start_job', 'end_job'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON COLUMN cd_rollout_transitions.breach IS 'The rollout failed because it advanced beyond a passage that was not granted.';
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, which weights the program of a requested one will skip, what stops one, which freezes are bypassed, which groups an approval counts for, or which passage a breach went around.';
COMMENT ON COLUMN cd_rollout_transitions.gate_id IS 'The gate that is asked about, or answered; several may be open at once.';
CREATE INDEX cd_rollout_transitions_asking ON cd_rollout_transitions (organization_id, rollout_id) WHERE event = 'request_approval';
CREATE INDEX cd_rollout_transitions_breaches ON cd_rollout_transitions (created_at) WHERE breach;
CREATE INDEX cd_rollout_transitions_broken_glass ON cd_rollout_transitions (created_at) WHERE event = 'break_glass' AND gate_id IS NULL;
CREATE INDEX cd_rollout_transitions_by_action ON cd_rollout_transitions (organization_id, event, id) WHERE principal_type <> 'system';
CREATE INDEX cd_rollout_transitions_by_gate ON cd_rollout_transitions (organization_id, rollout_id, gate_id, id) WHERE gate_id IS NOT NULL;
CREATE INDEX cd_rollout_transitions_by_instant ON cd_rollout_transitions (organization_id, created_at, id) WHERE principal_type <> 'system';
-- What people, machines, policies and schedules did to rollouts: most rows are the system's.
CREATE INDEX cd_rollout_transitions_by_principal ON cd_rollout_transitions (organization_id, principal_type, principal_id, id)
    WHERE principal_type <> 'system';
CREATE INDEX cd_rollout_transitions_by_subject ON cd_rollout_transitions (organization_id, rollout_id, id);
CREATE INDEX cd_rollout_transitions_bypasses ON cd_rollout_transitions (created_at) WHERE event = 'bypass_freeze';
CREATE TRIGGER cd_rollout_transitions_are_append_only BEFORE UPDATE OR DELETE ON cd_rollout_transitions FOR EACH ROW
    EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_transitions_are_kept BEFORE TRUNCATE ON cd_rollout_transitions EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_transitions_controls_are_known BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'pass_gate' AND (COALESCE(NULLIF(current_setting('lockstep.controls', true), ''),
    '0'))::integer < 1) EXECUTE FUNCTION cd_refuse_unknown_controls();
CREATE TRIGGER cd_rollout_transitions_keep_asked AFTER INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event = 'request_approval') EXECUTE FUNCTION cd_keep_asked();
CREATE TRIGGER cd_rollout_transitions_run_deadlines AFTER INSERT ON cd_rollout_transitions FOR EACH ROW
    WHEN (new.event IN ('pass_gate', 'retry', 'resume', 'approve', 'expire', 'break_glass', 'bypass_freeze'))
    EXECUTE FUNCTION cd_run_deadlines();

CREATE TABLE cd_rollout_environment_transitions (
    id                     bigint NOT NULL DEFAULT nextval('cd_journal_positions'),
    organization_id        bigint NOT NULL CONSTRAINT cd_rollout_environment_transitions_organization REFERENCES cd_organizations (id),
    rollout_environment_id bigint NOT NULL,
    from_state             text,
    to_state               text NOT NULL,
    event                  text NOT NULL,
    principal_type         text NOT NULL,
    principal_id           bigint,
    reason                 text,
    triggered_by           text,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_rollout_environment_transitions_subject FOREIGN KEY (organization_id, rollout_environment_id)
        REFERENCES cd_rollout_environments (organization_id, id),
    CONSTRAINT cd_rollout_environment_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_rollout_environment_transitions_state_is_known CHECK (to_state IN ('pending', 'in_progress', 'paused', 'completed', 'failed', 'cancelled')),
    CONSTRAINT cd_rollout_environment_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 'pending'
        ELSE (from_state, to_state) IN (
            ('pending', 'in_progress'), ('pending', 'failed'), ('pending', 'cancelled'),
            ('in_progress', 'paused'), ('in_progress', 'completed'), ('in_progress', 'failed'), ('in_progress', 'cancelled'),
            ('paused', 'in_progress'), ('paused', 'failed'), ('paused', 'cancelled'))
        END),
    CONSTRAINT cd_rollout_environment_transitions_principal_is_known
        CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_rollout_environment_transitions_verb_is_known
        CHECK (event IN ('create', 'start', 'pause', 'resume', 'complete', 'fail', 'cancel'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON TABLE cd_rollout_environment_transitions IS 'Beside the two journals of the design: a rollout environment has a state, so it has a journal.';
CREATE INDEX cd_rollout_environment_transitions_by_subject ON cd_rollout_environment_transitions (organization_id,
    rollout_environment_id, id);
CREATE TRIGGER cd_rollout_environment_transitions_are_append_only BEFORE UPDATE
    OR DELETE ON cd_rollout_environment_transitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_environment_transitions_are_kept BEFORE TRUNCATE ON cd_rollout_environment_transitions
    EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_deployment_transitions (
    id              bigint NOT NULL DEFAULT nextval('cd_journal_positions'),
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_transitions_organization REFERENCES cd_organizations (id),
    deployment_id   bigint NOT NULL,
    from_state      text,
    to_state        text NOT NULL,
    event           text NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint,
    reason          text,
    triggered_by    text,
    gate_id         text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_deployment_transitions_subject FOREIGN KEY (organization_id, deployment_id)
        REFERENCES cd_deployments (organization_id, id),
    CONSTRAINT cd_deployment_transitions_creation_is_first CHECK ((event = 'create') = (from_state IS NULL)),
    CONSTRAINT cd_deployment_transitions_gate_is_named CHECK ((event IN ('reach_gate', 'pass_gate')) = (gate_id IS NOT NULL)),
    CONSTRAINT cd_deployment_transitions_state_is_known CHECK (to_state IN ('pending', 'deploying', 'healthy', 'degraded', 'failed', 'cancelled')),
    CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 'pending'
        WHEN event IN ('reach_gate', 'pass_gate') THEN from_state <> 'pending' AND to_state = from_state
        ELSE (from_state, to_state) IN (
            ('pending', 'deploying'), ('pending', 'failed'), ('pending', 'cancelled'),
            ('deploying', 'healthy'), ('deploying', 'degraded'), ('deploying', 'failed'), ('deploying', 'cancelled'))
        END),
    CONSTRAINT cd_deployment_transitions_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_deployment_transitions_verb_is_known
        CHECK (event IN ('create', 'start', 'reach_gate', 'pass_gate', 'complete', 'degrade', 'fail', 'cancel'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON COLUMN cd_deployment_transitions.gate_id IS 'The gate that was come to or gone past: <environment>/<weight>.';
CREATE INDEX cd_deployment_transitions_by_subject ON cd_deployment_transitions (organization_id, deployment_id, id);
CREATE TRIGGER cd_deployment_transitions_are_append_only BEFORE UPDATE
    OR DELETE ON cd_deployment_transitions FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_deployment_transitions_are_kept BEFORE TRUNCATE ON cd_deployment_transitions EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_journal_blocks (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_journal_blocks_organization REFERENCES cd_organizations (id),
    number          bigint NOT NULL,
    above           bigint NOT NULL,
    upto            bigint NOT NULL,
    row_count       integer NOT NULL,
    previous        text NOT NULL,
    digest          text NOT NULL,
    sealed_at       timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_journal_blocks_are_in_a_row UNIQUE (organization_id, number),
    CONSTRAINT cd_journal_blocks_digest_is_sha256 CHECK (digest ~ '^[0-9a-f]{64}$'),
    CONSTRAINT cd_journal_blocks_follow_one CHECK ((number = 1) = (previous = '')),
    CONSTRAINT cd_journal_blocks_go_up CHECK (upto > above),
    CONSTRAINT cd_journal_blocks_have_rows CHECK (row_count > 0),
    CONSTRAINT cd_journal_blocks_number_from_1 CHECK (number > 0)
);
COMMENT ON TABLE cd_journal_blocks IS 'Each block covers the rows of all four journals between two positions, and the block before; append-only.';
COMMENT ON COLUMN cd_journal_blocks.above IS 'The position that the block begins behind: where the block before ends.';
COMMENT ON COLUMN cd_journal_blocks.digest IS 'SHA-256, as hexadecimal, of the block and the canonical form of its rows.';
COMMENT ON COLUMN cd_journal_blocks.previous IS 'The digest of the block before; empty for the first.';
COMMENT ON COLUMN cd_journal_blocks.upto IS 'The position of its last row.';
CREATE INDEX cd_journal_blocks_by_position ON cd_journal_blocks (organization_id, upto);
CREATE TRIGGER cd_journal_blocks_are_append_only BEFORE UPDATE OR DELETE ON cd_journal_blocks FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_journal_blocks_are_kept BEFORE TRUNCATE ON cd_journal_blocks EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_journal_checks (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_journal_checks_organization REFERENCES cd_organizations (id),
    block           bigint NOT NULL,
    head            text NOT NULL,
    upto            bigint NOT NULL,
    problem         text NOT NULL DEFAULT '',
    checked_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_journal_checks_one_each UNIQUE (organization_id)
);
COMMENT ON TABLE cd_journal_checks IS 'How far the chain of an organization was checked by the schedule, and what was found.';
COMMENT ON COLUMN cd_journal_checks.block IS 'The last block that is right; 0 for none.';
COMMENT ON COLUMN cd_journal_checks.head IS 'The digest of that block: the chain must still have it.';
COMMENT ON COLUMN cd_journal_checks.problem IS 'The first thing that is wrong; empty for nothing.';
CREATE TRIGGER cd_journal_checks_touch BEFORE UPDATE ON cd_journal_checks FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_journal_health() RETURNS TABLE(problems bigint, oldest_check timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT count(*) FILTER (WHERE c.problem <> ''), COALESCE(min(c.checked_at), 'epoch'::timestamptz) FROM cd_journal_checks c;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_journal_health IS 'For the operators of the installation: in how many organizations the chain is broken, and nothing that belongs to them.';

-- +goose StatementBegin
CREATE FUNCTION cd_breaches() RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE times bigint;
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*) INTO times FROM cd_rollout_transitions WHERE breach;
    PERFORM set_config('lockstep.across', '', true);
    RETURN times;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_breaches IS 'For the metrics of the whole installation: how many rollouts failed because they advanced beyond a passage that was not granted.';

-- +goose StatementBegin
CREATE FUNCTION cd_broken_glass(OUT times bigint, OUT last_at timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), max(created_at) INTO times, last_at FROM cd_rollout_transitions WHERE event = 'break_glass' AND gate_id IS NULL;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_broken_glass IS 'For the metrics of the whole installation: how often break-glass was used, and when last.';

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
COMMENT ON FUNCTION cd_freeze_bypasses IS 'For the metrics of the whole installation: how often a freeze was bypassed for a rollout.';

-- +goose Down
DROP FUNCTION cd_freeze_bypasses;
DROP FUNCTION cd_broken_glass;
DROP FUNCTION cd_breaches;
DROP FUNCTION cd_journal_health;
DROP TABLE cd_journal_checks;
DROP TABLE cd_journal_blocks;
DROP TABLE cd_deployment_transitions;
DROP TABLE cd_rollout_environment_transitions;
DROP TABLE cd_rollout_transitions;
DROP FUNCTION cd_run_deadlines;
DROP FUNCTION cd_keep_asked;
