-- Where a pipeline and an environment both ask for an approval, both are met: the pinned rule keeps every requirement (D46). Rows that are
-- there have one, in the columns that they had.

-- +goose Up
ALTER TABLE cd_rollout_gates
    ADD COLUMN also jsonb,
    ADD CONSTRAINT cd_rollout_gates_requirements_are_a_list CHECK (also IS NULL OR jsonb_typeof(also) = 'array' AND jsonb_array_length(also) > 0);
COMMENT ON COLUMN cd_rollout_gates.also IS 'What else has to be met, as a list of {group, quorum}; without a group it counts people. Null if nothing else.';
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze', 'approve'));
COMMENT ON COLUMN cd_rollout_transitions.conditions IS 'What satisfied each condition of a granted passage, which weights the program of a requested one will skip, what stops one, which freezes are bypassed, or which groups an approval counts for.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_load(OUT handoffs_due bigint, OUT handoffs_oldest_seconds double precision, OUT gates_waiting bigint, OUT gates_oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(h.created_at)), 0) INTO handoffs_due, handoffs_oldest_seconds
    FROM cd_handoffs h WHERE h.state = 0;
    -- A gate is asked for once more after a retry: its latest request counts.
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(asked.created_at)), 0) INTO gates_waiting, gates_oldest_seconds
    FROM cd_rollouts r
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (t.gate_id) t.id, t.gate_id, t.created_at FROM cd_rollout_transitions t
        WHERE t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'request_approval' ORDER BY t.gate_id, t.id DESC
    ) asked
    LEFT JOIN cd_rollout_gates g ON g.organization_id = r.organization_id AND g.rollout_id = r.id AND g.gate_id = asked.gate_id
    WHERE r.state IN (0, 1, 2)
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
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_load(OUT handoffs_due bigint, OUT handoffs_oldest_seconds double precision, OUT gates_waiting bigint, OUT gates_oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(h.created_at)), 0) INTO handoffs_due, handoffs_oldest_seconds
    FROM cd_handoffs h WHERE h.state = 0;
    -- A gate is asked for once more after a retry: its latest request counts.
    SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(asked.created_at)), 0) INTO gates_waiting, gates_oldest_seconds
    FROM cd_rollouts r
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (t.gate_id) t.id, t.gate_id, t.created_at FROM cd_rollout_transitions t
        WHERE t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'request_approval' ORDER BY t.gate_id, t.id DESC
    ) asked
    LEFT JOIN cd_rollout_gates g ON g.organization_id = r.organization_id AND g.rollout_id = r.id AND g.gate_id = asked.gate_id
    WHERE r.state IN (0, 1, 2)
      AND NOT EXISTS (
          SELECT FROM cd_rollout_transitions a
          WHERE a.organization_id = r.organization_id AND a.rollout_id = r.id AND a.id > asked.id
            AND (a.event IN ('reject', 'expire') AND a.gate_id = asked.gate_id OR a.event = 'abort'))
      AND (SELECT count(*) FROM cd_rollout_transitions a
           WHERE a.organization_id = r.organization_id AND a.rollout_id = r.id AND a.id > asked.id AND a.gate_id = asked.gate_id AND a.event = 'approve')
          < COALESCE(g.quorum, 1);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
ALTER TABLE cd_rollout_transitions
    DROP CONSTRAINT cd_rollout_transitions_conditions_are_of_passages,
    ADD CONSTRAINT cd_rollout_transitions_conditions_are_of_passages CHECK (conditions IS NULL OR event IN ('request_passage', 'pass_gate', 'stop_passage', 'bypass_freeze')) NOT VALID;
ALTER TABLE cd_rollout_gates
    DROP CONSTRAINT cd_rollout_gates_requirements_are_a_list,
    DROP COLUMN also;
