-- What the operator of an installation watches, of all organizations together: numbers alone, no tenant's words.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_load(OUT handoffs_due bigint, OUT handoffs_oldest_seconds double precision, OUT gates_waiting bigint, OUT gates_oldest_seconds double precision)
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

-- +goose Down
DROP FUNCTION cd_load();
