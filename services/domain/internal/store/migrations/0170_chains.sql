-- Chains (D58): rollouts of other applications that begin after one of an application, block after block.

-- +goose Up
CREATE TABLE cd_chains (
    organization_id bigint NOT NULL CONSTRAINT cd_chains_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    trigger_id      bigint NOT NULL,
    application_id  bigint NOT NULL,
    rollout_id      bigint NOT NULL,
    parent_id       bigint,
    state           text NOT NULL DEFAULT 'running' CONSTRAINT cd_chains_state_is_known CHECK (state IN ('running', 'completed', 'stopped', 'cancelled')),
    block           integer NOT NULL DEFAULT 0,
    blocks          integer NOT NULL,
    reason          text NOT NULL DEFAULT '',
    began_at        timestamptz NOT NULL,
    ended_at        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chains_once UNIQUE (organization_id, trigger_id, rollout_id),
    CONSTRAINT cd_chains_blocks_are_in_order CHECK (block BETWEEN 0 AND blocks),
    CONSTRAINT cd_chains_ended_says_why CHECK ((state = 'running') = (ended_at IS NULL) AND (state = 'running' OR reason <> '')),
    CONSTRAINT cd_chains_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_chains_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_chains_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_chains_parent FOREIGN KEY (organization_id, parent_id) REFERENCES cd_chains (organization_id, id)
);
CREATE INDEX cd_chains_of_application ON cd_chains (organization_id, application_id, id);
CREATE INDEX cd_chains_of_rollout ON cd_chains (organization_id, rollout_id);
CREATE INDEX cd_chains_of_parent ON cd_chains (organization_id, parent_id) WHERE parent_id IS NOT NULL;
COMMENT ON TABLE cd_chains IS 'A chain is begun by one rollout of one trigger, at most once. Rows are kept.';
COMMENT ON COLUMN cd_chains.trigger_id IS 'The trigger whose blocks it has.';
COMMENT ON COLUMN cd_chains.rollout_id IS 'The rollout that it follows.';
COMMENT ON COLUMN cd_chains.parent_id IS 'The chain that began that rollout; null for none.';
COMMENT ON COLUMN cd_chains.block IS 'The number of the block that has begun last; 0 for none.';
COMMENT ON COLUMN cd_chains.reason IS 'Why it ended as it did, in one sentence.';
CREATE TRIGGER cd_chains_touch BEFORE UPDATE ON cd_chains FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_chain_nodes (
    organization_id bigint NOT NULL CONSTRAINT cd_chain_nodes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    chain_id        bigint NOT NULL,
    block           integer NOT NULL CONSTRAINT cd_chain_nodes_block_is_counted CHECK (block > 0),
    application_id  bigint NOT NULL,
    trigger_id      bigint,
    state           text NOT NULL CONSTRAINT cd_chain_nodes_state_is_known
        CHECK (state IN ('waiting', 'begun', 'completed', 'unchanged', 'failed', 'skipped', 'stopped', 'cancelled')),
    reason          text NOT NULL DEFAULT '',
    rollout_id      bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_chain_nodes_application_is_once UNIQUE (organization_id, chain_id, application_id),
    CONSTRAINT cd_chain_nodes_skipped_has_no_trigger CHECK (state = 'skipped' OR trigger_id IS NOT NULL),
    CONSTRAINT cd_chain_nodes_ended_says_why CHECK (state IN ('waiting', 'begun', 'completed') OR reason <> ''),
    CONSTRAINT cd_chain_nodes_chain FOREIGN KEY (organization_id, chain_id) REFERENCES cd_chains (organization_id, id),
    CONSTRAINT cd_chain_nodes_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_chain_nodes_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_chain_nodes_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id)
);
CREATE INDEX cd_chain_nodes_of_rollout ON cd_chain_nodes (organization_id, rollout_id) WHERE rollout_id IS NOT NULL;
COMMENT ON TABLE cd_chain_nodes IS 'The applications of a chain, as its blocks selected them when it began.';
COMMENT ON COLUMN cd_chain_nodes.block IS 'The number of its block, from 1.';
COMMENT ON COLUMN cd_chain_nodes.trigger_id IS 'The trigger of the application that follows; null for one that is skipped.';
COMMENT ON COLUMN cd_chain_nodes.state IS 'begun: the trigger has a signal, which says what came of it. All but waiting and begun are final.';
COMMENT ON COLUMN cd_chain_nodes.rollout_id IS 'The rollout that began; known once it has ended.';
CREATE TRIGGER cd_chain_nodes_touch BEFORE UPDATE ON cd_chain_nodes FOR EACH ROW EXECUTE FUNCTION cd_touch();

ALTER TABLE cd_trigger_signals
    DROP CONSTRAINT cd_trigger_signals_outcome_is_known,
    DROP CONSTRAINT cd_trigger_signals_decided_has_outcome,
    ADD CONSTRAINT cd_trigger_signals_outcome_is_known CHECK (outcome IN ('', 'waiting', 'began', 'queued', 'declined', 'done')),
    ADD CONSTRAINT cd_trigger_signals_decided_has_outcome
        CHECK (state = 'pending' OR outcome IN ('began', 'queued', 'declined', 'done') AND decided_at IS NOT NULL);
COMMENT ON COLUMN cd_trigger_signals.cause IS
    'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>, rollout:<rollout>, chain:<node>.';

-- +goose Down
UPDATE cd_trigger_signals SET outcome = 'declined' WHERE outcome = 'done';
COMMENT ON COLUMN cd_trigger_signals.cause IS 'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>.';
ALTER TABLE cd_trigger_signals
    DROP CONSTRAINT cd_trigger_signals_outcome_is_known,
    DROP CONSTRAINT cd_trigger_signals_decided_has_outcome,
    ADD CONSTRAINT cd_trigger_signals_outcome_is_known CHECK (outcome IN ('', 'waiting', 'began', 'queued', 'declined')),
    ADD CONSTRAINT cd_trigger_signals_decided_has_outcome
        CHECK (state = 'pending' OR outcome IN ('began', 'queued', 'declined') AND decided_at IS NOT NULL);
DROP TABLE cd_chain_nodes;
DROP TABLE cd_chains;
