-- Triggers (D58): what begins rollouts of an application, what they had to decide about, and the holds that keep automation from undoing a
-- rollback.

-- +goose Up
CREATE TABLE cd_triggers (
    organization_id bigint NOT NULL CONSTRAINT cd_triggers_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_triggers_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    kind            text NOT NULL CONSTRAINT cd_triggers_kind_is_known CHECK (kind IN ('version', 'git', 'manual', 'drift', 'chain', 'schedule', 'event')),
    config          jsonb NOT NULL CONSTRAINT cd_triggers_config_is_an_object CHECK (jsonb_typeof(config) = 'object'),
    enabled         boolean NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_triggers_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_triggers_config_is_bounded CHECK (length(config::text) <= 16384),
    CONSTRAINT cd_triggers_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id)
);
CREATE UNIQUE INDEX cd_triggers_name_is_unique ON cd_triggers (organization_id, application_id, name) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX cd_triggers_one_is_manual ON cd_triggers (organization_id, application_id) WHERE removed_at IS NULL AND kind = 'manual';
CREATE INDEX cd_triggers_of_kind ON cd_triggers (organization_id, kind, application_id) WHERE removed_at IS NULL AND enabled;
COMMENT ON TABLE cd_triggers IS 'What begins rollouts of an application. Rows are kept: signals and queued rollouts refer to them; removed_at ends one.';
COMMENT ON COLUMN cd_triggers.config IS 'As its kind has it; checked when it is saved.';
COMMENT ON COLUMN cd_triggers.changed_at IS 'When it was saved last, by the principal.';
CREATE TRIGGER cd_triggers_touch BEFORE UPDATE ON cd_triggers FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_trigger_signals (
    organization_id bigint NOT NULL CONSTRAINT cd_trigger_signals_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    trigger_id      bigint NOT NULL,
    cause           text NOT NULL CONSTRAINT cd_trigger_signals_cause_is_bounded CHECK (octet_length(cause) BETWEEN 1 AND 700),
    at              timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'pending' CONSTRAINT cd_trigger_signals_state_is_known CHECK (state IN ('pending', 'decided')),
    outcome         text NOT NULL DEFAULT '' CONSTRAINT cd_trigger_signals_outcome_is_known CHECK (outcome IN ('', 'waiting', 'began', 'queued', 'declined')),
    reason          text NOT NULL DEFAULT '',
    version_set_id  bigint,
    rollout_id      bigint,
    decided_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_trigger_signals_once UNIQUE (organization_id, trigger_id, cause),
    CONSTRAINT cd_trigger_signals_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_trigger_signals_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_trigger_signals_decision_says_why CHECK ((outcome = '') = (reason = '')),
    CONSTRAINT cd_trigger_signals_decided_has_outcome CHECK (state = 'pending' OR outcome IN ('began', 'queued', 'declined') AND decided_at IS NOT NULL),
    CONSTRAINT cd_trigger_signals_began_has_rollout CHECK (outcome <> 'began' OR rollout_id IS NOT NULL)
);
CREATE INDEX cd_trigger_signals_due ON cd_trigger_signals (due_at, id) WHERE state = 'pending';
CREATE INDEX cd_trigger_signals_due_in ON cd_trigger_signals (organization_id, due_at, id) WHERE state = 'pending';
CREATE INDEX cd_trigger_signals_of_trigger ON cd_trigger_signals (organization_id, trigger_id, id);
CREATE INDEX cd_trigger_signals_queued ON cd_trigger_signals (organization_id, trigger_id) WHERE outcome = 'queued';
CREATE INDEX cd_trigger_signals_by_time ON cd_trigger_signals (organization_id, decided_at) WHERE state = 'decided';
CREATE INDEX cd_trigger_signals_of_rollout ON cd_trigger_signals (organization_id, rollout_id) WHERE rollout_id IS NOT NULL;
COMMENT ON TABLE cd_trigger_signals IS 'What triggers have to decide about, and what they decided: each cause once. Rows end 90 days after the decision, but for the latest of each trigger.';
COMMENT ON COLUMN cd_trigger_signals.cause IS 'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>.';
COMMENT ON COLUMN cd_trigger_signals.at IS 'When it happened.';
COMMENT ON COLUMN cd_trigger_signals.due_at IS 'When it is decided about; the decision may put it off.';
COMMENT ON COLUMN cd_trigger_signals.outcome IS 'Empty before the first decision; waiting only while it is pending.';
COMMENT ON COLUMN cd_trigger_signals.reason IS 'The decision in one sentence.';
CREATE TRIGGER cd_trigger_signals_touch BEFORE UPDATE ON cd_trigger_signals FOR EACH ROW EXECUTE FUNCTION cd_touch();

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
CREATE UNIQUE INDEX cd_promotion_holds_one_in_force ON cd_promotion_holds (organization_id, application_id, environment_id) WHERE released_at IS NULL;
COMMENT ON TABLE cd_promotion_holds IS 'Where automation begins no rollouts of an application, because something was rolled back there. Rows are kept: one for each time between a rollback and the release.';
COMMENT ON COLUMN cd_promotion_holds.rollout_id IS 'The rollback.';
COMMENT ON COLUMN cd_promotion_holds.released_at IS 'When it was released; null while it holds. The journal of changes says by whom.';
CREATE TRIGGER cd_promotion_holds_touch BEFORE UPDATE ON cd_promotion_holds FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_queued_rollouts
    ADD COLUMN environments text[] NOT NULL DEFAULT '{}',
    ADD COLUMN trigger_id bigint,
    ADD COLUMN cause text NOT NULL DEFAULT '',
    ADD CONSTRAINT cd_queued_rollouts_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id);
COMMENT ON COLUMN cd_queued_rollouts.environments IS 'Where it goes, by name; empty for the whole pipeline.';
COMMENT ON COLUMN cd_queued_rollouts.trigger_id IS 'The trigger that asked for it; null for none.';
COMMENT ON COLUMN cd_queued_rollouts.cause IS 'What made the trigger ask for it; empty without one.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_signals(until timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_trigger_signals WHERE state = 'pending' AND due_at <= until;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_signals(timestamptz) IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_signals(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT s.organization_id, s.id FROM cd_trigger_signals s
        WHERE s.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND s.state = 'decided' AND s.decided_at < before
          AND EXISTS (SELECT FROM cd_trigger_signals n WHERE n.organization_id = s.organization_id AND n.trigger_id = s.trigger_id AND n.id > s.id)
        LIMIT most
    ), gone AS (DELETE FROM cd_trigger_signals s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id RETURNING 1)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_signals(timestamptz, integer) IS 'Signals are no record: the journals have the rollouts that began.';

-- +goose Down
DROP FUNCTION cd_forget_signals(timestamptz, integer);
DROP FUNCTION cd_organizations_with_due_signals(timestamptz);
ALTER TABLE cd_queued_rollouts DROP CONSTRAINT cd_queued_rollouts_trigger, DROP COLUMN environments, DROP COLUMN trigger_id, DROP COLUMN cause;
DROP TABLE cd_promotion_holds;
DROP TABLE cd_trigger_signals;
DROP TABLE cd_triggers;
