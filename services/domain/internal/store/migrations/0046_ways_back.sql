-- A way back is linked to what it takes back, leaves out environments, may break the glass, and may be stopped while only a policy
-- wants it. All four are in the rollout's journal.

-- +goose Up
ALTER TABLE cd_rollouts
    ADD COLUMN rollback_of bigint,
    ADD CONSTRAINT cd_rollouts_rollback_of FOREIGN KEY (organization_id, rollback_of) REFERENCES cd_rollouts (organization_id, id),
    ADD CONSTRAINT cd_rollouts_rolls_back_an_earlier_one CHECK (rollback_of < id);
COMMENT ON COLUMN cd_rollouts.rollback_of IS 'The rollout that it takes back; null for one that takes none back, and for those that people began before there was this column.';
-- Behind the walls the owner changes nothing, and sees nothing unless it says that it looks across organizations.
SELECT set_config('lockstep.across', 'on', true);
ALTER TABLE cd_rollouts NO FORCE ROW LEVEL SECURITY;
UPDATE cd_rollouts r SET rollback_of = b.rollout_id
FROM cd_automatic_rollbacks b WHERE b.organization_id = r.organization_id AND b.made_rollout_id = r.id;
ALTER TABLE cd_rollouts FORCE ROW LEVEL SECURITY;
SELECT set_config('lockstep.across', '', true);
CREATE INDEX cd_rollouts_by_rolled_back ON cd_rollouts (organization_id, rollback_of, id DESC) WHERE rollback_of IS NOT NULL;
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'rollback_of', 'created_at');

CREATE TABLE cd_rollout_skips (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_rollout_skips_organization REFERENCES cd_organizations (id),
    rollout_id      bigint NOT NULL,
    environment_id  bigint NOT NULL,
    cause           text NOT NULL CONSTRAINT cd_rollout_skips_cause_is_known CHECK (cause IN ('unchanged', 'excluded')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_rollout_skips_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_rollout_skips_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_rollout_skips_once UNIQUE (organization_id, rollout_id, environment_id)
);
COMMENT ON TABLE cd_rollout_skips IS 'Environments of its pipeline that a rollback does not go to: it has no rollout environment there.';
COMMENT ON COLUMN cd_rollout_skips.cause IS 'unchanged: its version set is live there already. excluded: by request.';
CREATE TRIGGER cd_rollout_skips_are_immutable BEFORE UPDATE OR DELETE ON cd_rollout_skips FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_rollout_skips_are_kept BEFORE TRUNCATE ON cd_rollout_skips EXECUTE FUNCTION cd_refuse();

ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback')),
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK (event = 'break_glass' OR (event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry', 'skip', 'break_glass', 'stop_rollback') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END),
    DROP CONSTRAINT cd_rollout_transitions_terminal_asks_nothing,
    ADD CONSTRAINT cd_rollout_transitions_terminal_asks_nothing CHECK (from_state IS NULL OR from_state < 3 OR event IN ('reach_gate', 'stop_rollback')),
    ADD CONSTRAINT cd_rollout_transitions_person_breaks_the_glass CHECK (event <> 'break_glass' OR principal_type = 'user' AND principal_id IS NOT NULL AND reason <> '');
COMMENT ON CONSTRAINT cd_rollout_transitions_person_breaks_the_glass ON cd_rollout_transitions IS 'Break-glass is a person''s, who says why: no program, policy or machine may claim it.';
CREATE INDEX cd_rollout_transitions_broken_glass ON cd_rollout_transitions (created_at) WHERE event = 'break_glass' AND gate_id IS NULL;

-- +goose StatementBegin
CREATE FUNCTION cd_broken_glass(OUT times bigint, OUT last_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), max(created_at) INTO times, last_at FROM cd_rollout_transitions WHERE event = 'break_glass' AND gate_id IS NULL;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_broken_glass() IS 'For the metrics of the whole installation: how often somebody has broken the glass, and when last.';

-- +goose Down
DROP FUNCTION cd_broken_glass();
DROP INDEX cd_rollout_transitions_broken_glass;
-- Rows with the newer verbs stay: a journal loses nothing. The older code refuses to make more of them.
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_person_breaks_the_glass,
    DROP CONSTRAINT cd_rollout_transitions_terminal_asks_nothing,
    ADD CONSTRAINT cd_rollout_transitions_terminal_asks_nothing CHECK (from_state IS NULL OR from_state < 3 OR event = 'reach_gate') NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_request_changes_nothing,
    ADD CONSTRAINT cd_rollout_transitions_request_changes_nothing CHECK (CASE
        WHEN event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'abort', 'retry') THEN from_state IS NOT NULL AND from_state = to_state
        WHEN event IN ('pause', 'resume') THEN true
        ELSE from_state IS NULL OR from_state <> to_state
    END) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_gate_is_named,
    ADD CONSTRAINT cd_rollout_transitions_gate_is_named CHECK ((event IN ('request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate')) = (gate_id IS NOT NULL)) NOT VALID,
    DROP CONSTRAINT cd_rollout_transitions_verb_is_known,
    ADD CONSTRAINT cd_rollout_transitions_verb_is_known CHECK (event IN ('create', 'start', 'pause', 'resume', 'request_approval', 'approve', 'reject', 'expire', 'reach_gate', 'request_passage', 'pass_gate', 'complete', 'fail', 'cancel', 'abort', 'retry')) NOT VALID;
DROP TABLE cd_rollout_skips;
DROP TRIGGER cd_rollouts_pins_are_immutable ON cd_rollouts;
CREATE TRIGGER cd_rollouts_pins_are_immutable BEFORE UPDATE ON cd_rollouts FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'application_id', 'version_set_id', 'flow_definition_id', 'created_at');
DROP INDEX cd_rollouts_by_rolled_back;
ALTER TABLE cd_rollouts
    DROP CONSTRAINT cd_rollouts_rolls_back_an_earlier_one,
    DROP CONSTRAINT cd_rollouts_rollback_of,
    DROP COLUMN rollback_of;
