-- What triggers have seen and decided, and chains of rollouts.

-- +goose Up
CREATE TABLE cd_trigger_signals (
    organization_id bigint NOT NULL CONSTRAINT cd_trigger_signals_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    trigger_id      bigint NOT NULL,
    cause           text NOT NULL,
    at              timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    outcome         text NOT NULL DEFAULT '',
    reason          text NOT NULL DEFAULT '',
    version_set_id  bigint,
    rollout_id      bigint,
    decided_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_trigger_signals_once UNIQUE (organization_id, trigger_id, cause),
    CONSTRAINT cd_trigger_signals_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_trigger_signals_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_trigger_signals_began_has_rollout CHECK (outcome <> 'began' OR rollout_id IS NOT NULL),
    CONSTRAINT cd_trigger_signals_cause_is_bounded CHECK (octet_length(cause) >= 1 AND octet_length(cause) <= 700),
    CONSTRAINT cd_trigger_signals_decided_has_outcome
        CHECK (state = 'pending' OR outcome IN ('began', 'queued', 'declined', 'done') AND decided_at IS NOT NULL),
    CONSTRAINT cd_trigger_signals_decision_says_why CHECK ((outcome = '') = (reason = '')),
    CONSTRAINT cd_trigger_signals_outcome_is_known CHECK (outcome IN ('', 'waiting', 'began', 'queued', 'declined', 'done')),
    CONSTRAINT cd_trigger_signals_state_is_known CHECK (state IN ('pending', 'decided'))
);
COMMENT ON TABLE cd_trigger_signals IS 'What triggers have to decide about, and what they decided: each cause once. Rows end 90 days after the decision, but for the latest of each trigger.';
COMMENT ON COLUMN cd_trigger_signals.at IS 'When it happened.';
COMMENT ON COLUMN cd_trigger_signals.cause IS 'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>, rollout:<rollout>, chain:<node>.';
COMMENT ON COLUMN cd_trigger_signals.due_at IS 'When it is decided about; the decision may put it off.';
COMMENT ON COLUMN cd_trigger_signals.outcome IS 'Empty before the first decision; waiting only while it is pending.';
COMMENT ON COLUMN cd_trigger_signals.reason IS 'The decision in one sentence.';
CREATE INDEX cd_trigger_signals_by_time ON cd_trigger_signals (organization_id, decided_at) WHERE state = 'decided';
CREATE INDEX cd_trigger_signals_due ON cd_trigger_signals (due_at, id) WHERE state = 'pending';
CREATE INDEX cd_trigger_signals_due_in ON cd_trigger_signals (organization_id, due_at, id) WHERE state = 'pending';
CREATE INDEX cd_trigger_signals_of_rollout ON cd_trigger_signals (organization_id, rollout_id) WHERE rollout_id IS NOT NULL;
CREATE INDEX cd_trigger_signals_of_trigger ON cd_trigger_signals (organization_id, trigger_id, id);
CREATE INDEX cd_trigger_signals_queued ON cd_trigger_signals (organization_id, trigger_id) WHERE outcome = 'queued';
CREATE TRIGGER cd_trigger_signals_touch BEFORE UPDATE ON cd_trigger_signals FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_chains (
    organization_id bigint NOT NULL CONSTRAINT cd_chains_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    trigger_id      bigint NOT NULL,
    application_id  bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    parent_id       bigint,
    state           text NOT NULL DEFAULT 'running',
    block           integer NOT NULL DEFAULT 0,
    blocks          integer NOT NULL,
    reason          text NOT NULL DEFAULT '',
    began_at        timestamptz NOT NULL,
    ended_at        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chains_once UNIQUE (organization_id, trigger_id, rollout_id),
    CONSTRAINT cd_chains_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_chains_parent FOREIGN KEY (organization_id, parent_id) REFERENCES cd_chains (organization_id, id),
    CONSTRAINT cd_chains_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_chains_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_chains_blocks_are_in_order CHECK (block >= 0 AND block <= blocks),
    CONSTRAINT cd_chains_ended_says_why CHECK ((state = 'running') = (ended_at IS NULL) AND (state = 'running' OR reason <> '')),
    CONSTRAINT cd_chains_state_is_known CHECK (state IN ('running', 'completed', 'stopped', 'cancelled'))
);
COMMENT ON TABLE cd_chains IS 'A chain is begun by one rollout of one trigger, at most once. Rows are kept.';
COMMENT ON COLUMN cd_chains.block IS 'The number of the block that has begun last; 0 for none.';
COMMENT ON COLUMN cd_chains.parent_id IS 'The chain that began that rollout; null for none.';
COMMENT ON COLUMN cd_chains.reason IS 'Why it ended as it did, in one sentence.';
COMMENT ON COLUMN cd_chains.rollout_id IS 'The rollout that it follows.';
COMMENT ON COLUMN cd_chains.trigger_id IS 'The trigger whose blocks it has.';
CREATE INDEX cd_chains_of_application ON cd_chains (organization_id, application_id, id);
CREATE INDEX cd_chains_of_parent ON cd_chains (organization_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX cd_chains_of_rollout ON cd_chains (organization_id, rollout_id);
CREATE TRIGGER cd_chains_touch BEFORE UPDATE ON cd_chains FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_chain_nodes (
    organization_id bigint NOT NULL CONSTRAINT cd_chain_nodes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    chain_id        bigint NOT NULL,
    block           integer NOT NULL,
    application_id  bigint NOT NULL,
    trigger_id      bigint,
    state           text NOT NULL,
    reason          text NOT NULL DEFAULT '',
    rollout_id      bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chain_nodes_application_is_once UNIQUE (organization_id, chain_id, application_id),
    CONSTRAINT cd_chain_nodes_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_chain_nodes_chain FOREIGN KEY (organization_id, chain_id) REFERENCES cd_chains (organization_id, id),
    CONSTRAINT cd_chain_nodes_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_chain_nodes_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_chain_nodes_block_is_counted CHECK (block > 0),
    CONSTRAINT cd_chain_nodes_ended_says_why CHECK (state IN ('waiting', 'begun', 'completed') OR reason <> ''),
    CONSTRAINT cd_chain_nodes_skipped_has_no_trigger CHECK (state = 'skipped' OR trigger_id IS NOT NULL),
    CONSTRAINT cd_chain_nodes_state_is_known
        CHECK (state IN ('waiting', 'begun', 'completed', 'unchanged', 'failed', 'skipped', 'stopped', 'cancelled'))
);
COMMENT ON TABLE cd_chain_nodes IS 'The applications of a chain, as its blocks selected them when it began.';
COMMENT ON COLUMN cd_chain_nodes.block IS 'The number of its block, from 1.';
COMMENT ON COLUMN cd_chain_nodes.rollout_id IS 'The rollout that began; known once it has ended.';
COMMENT ON COLUMN cd_chain_nodes.state IS 'begun: the trigger has a signal, which says what came of it. All but waiting and begun are final.';
COMMENT ON COLUMN cd_chain_nodes.trigger_id IS 'The trigger of the application that follows; null for one that is skipped.';
CREATE INDEX cd_chain_nodes_of_rollout ON cd_chain_nodes (organization_id, rollout_id) WHERE rollout_id IS NOT NULL;
CREATE TRIGGER cd_chain_nodes_touch BEFORE UPDATE ON cd_chain_nodes FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_signals(until timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT organization_id FROM cd_trigger_signals WHERE state = 'pending' AND due_at <= until;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_signals IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_signals(before timestamptz, most integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT s.organization_id, s.id FROM cd_trigger_signals s
        WHERE s.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND s.state = 'decided' AND s.decided_at < before
          AND EXISTS (SELECT FROM cd_trigger_signals n WHERE n.organization_id = s.organization_id AND n.trigger_id = s.trigger_id AND n.id > s.id)
        LIMIT most
    ), gone AS (DELETE FROM cd_trigger_signals s USING old WHERE s.organization_id = old.organization_id AND s.id = old.id RETURNING 1)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_signals IS 'Signals are no record: the journals have the rollouts that began.';

-- +goose Down
DROP FUNCTION cd_forget_signals;
DROP FUNCTION cd_organizations_with_due_signals;
DROP TABLE cd_chain_nodes;
DROP TABLE cd_chains;
DROP TABLE cd_trigger_signals;
