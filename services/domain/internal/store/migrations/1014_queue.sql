-- Rollouts that wait for another to end, and those that take one back by policy.

-- +goose Up
CREATE TABLE cd_queued_rollouts (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_queued_rollouts_organization REFERENCES cd_organizations (id),
    application_id  bigint NOT NULL,
    version_set_id  bigint NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint,
    reason          text NOT NULL DEFAULT '',
    requested_at    timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    outcome         text NOT NULL DEFAULT '',
    made_rollout_id bigint,
    environments    text[] NOT NULL DEFAULT '{}',
    trigger_id      bigint,
    cause           text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_queued_rollouts_made_rollout FOREIGN KEY (organization_id, made_rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_queued_rollouts_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_queued_rollouts_version_set FOREIGN KEY (organization_id, application_id, version_set_id)
        REFERENCES cd_version_sets (organization_id, application_id, id),
    CONSTRAINT cd_queued_rollouts_started_has_made CHECK ((state = 'started') = (made_rollout_id IS NOT NULL)),
    CONSTRAINT cd_queued_rollouts_dropped_says_why CHECK ((state = 'dropped') = (outcome <> '')),
    CONSTRAINT cd_queued_rollouts_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_queued_rollouts_state_is_known CHECK (state IN ('pending', 'started', 'dropped'))
);
COMMENT ON COLUMN cd_queued_rollouts.cause IS 'What made the trigger ask for it; empty without one.';
COMMENT ON COLUMN cd_queued_rollouts.environments IS 'Where it goes, by name; empty for the whole pipeline.';
COMMENT ON COLUMN cd_queued_rollouts.trigger_id IS 'The trigger that asked for it; null for none.';
CREATE INDEX cd_queued_rollouts_by_made_rollout ON cd_queued_rollouts (organization_id, made_rollout_id) WHERE made_rollout_id IS NOT NULL;
CREATE UNIQUE INDEX cd_queued_rollouts_one_waits_per_application ON cd_queued_rollouts (organization_id, application_id)
    WHERE state = 'pending';
CREATE TRIGGER cd_queued_rollouts_touch BEFORE UPDATE ON cd_queued_rollouts FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_automatic_rollbacks (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    organization_id bigint NOT NULL CONSTRAINT cd_automatic_rollbacks_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    cause           text NOT NULL,
    due_at          timestamptz,
    state           text NOT NULL DEFAULT 'pending',
    outcome         text NOT NULL DEFAULT '',
    made_rollout_id bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_automatic_rollbacks_made_by_one UNIQUE (organization_id, made_rollout_id),
    CONSTRAINT cd_automatic_rollbacks_once_per_rollout UNIQUE (organization_id, rollout_id),
    CONSTRAINT cd_automatic_rollbacks_made_rollout FOREIGN KEY (organization_id, made_rollout_id)
        REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_automatic_rollbacks_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_automatic_rollbacks_cause_is_known CHECK (cause IN ('failed', 'degraded')),
    CONSTRAINT cd_automatic_rollbacks_started_has_made CHECK ((state = 'started') = (made_rollout_id IS NOT NULL)),
    CONSTRAINT cd_automatic_rollbacks_dropped_says_why CHECK ((state = 'dropped') = (outcome <> '')),
    CONSTRAINT cd_automatic_rollbacks_only_a_clock_stands CHECK (due_at IS NOT NULL OR cause = 'degraded' AND state = 'pending'),
    CONSTRAINT cd_automatic_rollbacks_state_is_known CHECK (state IN ('pending', 'started', 'dropped'))
);
COMMENT ON COLUMN cd_automatic_rollbacks.due_at IS 'NULL while nothing is degraded: the clock stands, and starts anew with the next degradation.';
CREATE INDEX cd_automatic_rollbacks_due ON cd_automatic_rollbacks (due_at, id) WHERE state = 'pending';
CREATE TRIGGER cd_automatic_rollbacks_touch BEFORE UPDATE ON cd_automatic_rollbacks FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_promotion_holds (
    organization_id bigint NOT NULL CONSTRAINT cd_promotion_holds_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    environment_id  bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    since           timestamptz NOT NULL,
    released_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_promotion_holds_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_promotion_holds_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_promotion_holds_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
COMMENT ON TABLE cd_promotion_holds IS 'Where automation begins no rollouts of an application, because something was rolled back there. Rows are kept: one for each time between a rollback and the release.';
COMMENT ON COLUMN cd_promotion_holds.released_at IS 'When it was released; null while it holds. The journal of changes says by whom.';
COMMENT ON COLUMN cd_promotion_holds.rollout_id IS 'The rollback.';
CREATE UNIQUE INDEX cd_promotion_holds_one_in_force ON cd_promotion_holds (organization_id, application_id, environment_id)
    WHERE released_at IS NULL;
CREATE TRIGGER cd_promotion_holds_touch BEFORE UPDATE ON cd_promotion_holds FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_free_queue() RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT q.organization_id FROM cd_queued_rollouts q
    WHERE q.state = 'pending' AND NOT EXISTS (SELECT FROM cd_rollouts r WHERE r.organization_id = q.organization_id AND r.application_id = q.application_id AND r.state IN ('pending', 'in_progress', 'paused'))
    GROUP BY q.organization_id ORDER BY min(q.requested_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_free_queue IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_rollbacks(at timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT organization_id FROM cd_automatic_rollbacks WHERE state = 'pending' AND due_at <= at GROUP BY organization_id ORDER BY min(due_at);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_rollbacks IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_organizations_with_due_rollbacks;
DROP FUNCTION cd_organizations_with_free_queue;
DROP TABLE cd_promotion_holds;
DROP TABLE cd_automatic_rollbacks;
DROP TABLE cd_queued_rollouts;
