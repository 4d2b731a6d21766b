-- A deployment's journal tells the gates that it has come to and gone past: rows that change no state, like requests (D17).

-- +goose Up
ALTER TABLE cd_deployment_transitions
    ADD COLUMN gate_id text,
    DROP CONSTRAINT cd_deployment_transitions_verb_is_known,
    ADD CONSTRAINT cd_deployment_transitions_verb_is_known CHECK (event IN ('create', 'start', 'reach_gate', 'pass_gate', 'complete', 'degrade', 'fail', 'cancel')),
    ADD CONSTRAINT cd_deployment_transitions_gate_is_named CHECK ((event IN ('reach_gate', 'pass_gate')) = (gate_id IS NOT NULL)),
    DROP CONSTRAINT cd_deployment_transitions_path_is_legal,
    ADD CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE
        WHEN from_state IS NULL THEN to_state = 0
        WHEN event IN ('reach_gate', 'pass_gate') THEN from_state = 1 AND to_state = 1
        ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5))
    END);

COMMENT ON COLUMN cd_deployment_transitions.gate_id IS 'The gate that was come to or gone past: <environment>/<weight>.';

-- +goose Down
ALTER TABLE cd_deployment_transitions
    DROP CONSTRAINT cd_deployment_transitions_path_is_legal,
    ADD CONSTRAINT cd_deployment_transitions_path_is_legal CHECK (CASE WHEN from_state IS NULL THEN to_state = 0 ELSE (from_state, to_state) IN ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5)) END),
    DROP CONSTRAINT cd_deployment_transitions_gate_is_named,
    DROP CONSTRAINT cd_deployment_transitions_verb_is_known,
    ADD CONSTRAINT cd_deployment_transitions_verb_is_known CHECK (event IN ('create', 'start', 'complete', 'degrade', 'fail', 'cancel')),
    DROP COLUMN gate_id;
