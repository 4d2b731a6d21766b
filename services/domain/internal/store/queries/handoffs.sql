-- name: InsertHandoff :exec
INSERT INTO cd_handoffs (organization_id, kind, workflow_id, subject_kind, subject_id, program, driver_digest, inputs, reason, due_at, traceparent)
VALUES (@organization_id, @kind, @workflow_id, @subject_kind, @subject_id, @program, @driver_digest, @inputs, @reason, @due_at,
    COALESCE((SELECT r.traceparent FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.id = @subject_id AND @subject_kind = 'rollout'),
        sqlc.narg(traceparent)::text));

-- name: InsertCancellation :exec
-- With the driver and the inputs of the run that is cancelled, if the engine may have it.
INSERT INTO cd_handoffs (organization_id, kind, workflow_id, subject_kind, subject_id, program, driver_digest, inputs, due_at, traceparent)
SELECT h.organization_id, 'start', @cancelled_workflow_id, 'cancellation', h.subject_id, 'cancelled', h.driver_digest, h.inputs || @inputs::jsonb, @at, h.traceparent
FROM cd_handoffs h
WHERE h.organization_id = @organization_id AND h.workflow_id = @workflow_id AND h.kind = 'start' AND h.state IN ('pending', 'done')
ON CONFLICT (organization_id, workflow_id, kind) DO NOTHING;

-- name: WithdrawStart :execrows
UPDATE cd_handoffs SET state = 'withdrawn'
WHERE organization_id = @organization_id AND workflow_id = @workflow_id AND kind = 'start' AND state = 'pending' AND attempts = 0;

-- name: ClaimHandoff :one
UPDATE cd_handoffs h SET attempts = h.attempts + 1, due_at = @until
WHERE h.organization_id = @organization_id AND h.id = (
    SELECT c.id FROM cd_handoffs c
    WHERE c.organization_id = @organization_id AND c.state = 'pending' AND c.due_at <= @at
      AND NOT EXISTS (SELECT FROM cd_handoffs o
          WHERE o.organization_id = c.organization_id AND o.workflow_id = c.workflow_id AND o.state = 'pending' AND o.id < c.id)
    ORDER BY c.due_at, c.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: SaveHandoff :execrows
UPDATE cd_handoffs SET state = @state, due_at = @due_at, error = @error WHERE organization_id = @organization_id AND id = @id AND state = 'pending';
