-- name: InsertRolloutGate :exec
-- Repeating it is a no-op: what was pinned first counts.
INSERT INTO cd_rollout_gates (organization_id, rollout_id, gate_id, quorum, approver_group, requester_may_approve, expires_after_seconds, on_expiry, reason, own, before_environment_id, also)
VALUES (@organization_id, @rollout_id, @gate_id, @quorum, @approver_group, @requester_may_approve, @expires_after_seconds, @on_expiry, @reason, @own, @before_environment_id, sqlc.narg(also)::jsonb)
ON CONFLICT (organization_id, rollout_id, gate_id) DO NOTHING;

-- name: RolloutGates :many
SELECT * FROM cd_rollout_gates WHERE organization_id = @organization_id AND rollout_id = @rollout_id ORDER BY id;

-- name: GatesPinned :many
SELECT * FROM cd_rollout_gates WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) ORDER BY rollout_id, id;

-- name: OpenGates :many
-- A gate of a rollout that is not over is open from its latest request until it is rejected, its time is over, or
-- enough different people have approved it (R38, D24), or the glass is broken. An abort leaves every gate. What was asked before there were rules has those of one person.
-- Where the rule has several requirements, the row of the approval that meets the last of them says so. The gate of an entrance has what was
-- proposed for its environment. Each part is looked up by rollout: whatever is estimated, the requests and creations of other rollouts are not read.
SELECT q.id AS request_id, q.rollout_id, q.gate_id, q.reason, q.created_at,
       COALESCE(g.quorum, 1)::integer AS quorum, COALESCE(g.approver_group, '')::text AS approver_group,
       COALESCE(g.requester_may_approve, true)::boolean AS requester_may_approve,
       COALESCE(g.expires_after_seconds, 0)::integer AS expires_after_seconds, COALESCE(g.on_expiry, 'reject')::text AS on_expiry,
       COALESCE(g.before_environment_id, 0)::bigint AS before_environment_id, g.also,
       c.principal_type AS requester_type, c.principal_id AS requester_id, answers.approvals,
       COALESCE(p.environment_id, 0)::bigint AS proposal_environment_id, COALESCE(p.number, 0)::bigint AS proposal_number,
       COALESCE(p.state, '')::text AS proposal_state, COALESCE(p.answered, false)::boolean AS proposal_answered, COALESCE(p.answer, '')::text AS proposal_answer
FROM cd_rollouts r
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (t.gate_id) t.id, t.rollout_id, t.gate_id, t.reason, t.created_at
    FROM cd_rollout_transitions t
    WHERE t.organization_id = @organization_id AND t.rollout_id = r.id AND t.event = 'request_approval'
    ORDER BY t.gate_id, t.id DESC
) q
CROSS JOIN LATERAL (
    SELECT t.principal_type, t.principal_id
    FROM cd_rollout_transitions t
    WHERE t.organization_id = @organization_id AND t.rollout_id = r.id AND t.event = 'create'
    ORDER BY t.id LIMIT 1
) c
LEFT JOIN cd_rollout_gates g ON g.organization_id = @organization_id AND g.rollout_id = q.rollout_id AND g.gate_id = q.gate_id
LEFT JOIN LATERAL (
    SELECT o.environment_id, o.number, o.state, o.answered_head = COALESCE(NULLIF(o.ended_head, ''), 'unknown') AS answered, o.answer
    FROM cd_rollout_proposals o
    JOIN cd_environments e ON e.organization_id = o.organization_id AND e.id = o.environment_id AND e.name = q.gate_id
    WHERE o.organization_id = @organization_id AND o.rollout_id = q.rollout_id
) p ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.event = 'approve') AS agreed,
           count(*) FILTER (WHERE a.event = 'approve' AND a.conditions -> 0 ->> 'outcome' = 'approved') AS completed,
           count(*) FILTER (WHERE a.event IN ('reject', 'expire', 'abort', 'break_glass')) AS ended,
           COALESCE(jsonb_agg(jsonb_build_object('type', a.principal_type, 'id', a.principal_id, 'reason', a.reason, 'at', a.created_at, 'counts', a.conditions) ORDER BY a.id)
               FILTER (WHERE a.event = 'approve'), '[]')::jsonb AS approvals
    FROM cd_rollout_transitions a
    WHERE a.organization_id = @organization_id AND a.rollout_id = q.rollout_id AND (a.gate_id = q.gate_id OR a.event = 'abort') AND a.id > q.id
) answers
WHERE r.organization_id = @organization_id AND r.id = ANY(@ids::bigint[]) AND r.state IN ('pending', 'in_progress', 'paused') AND answers.ended = 0 AND CASE WHEN g.also IS NULL THEN answers.agreed < COALESCE(g.quorum, 1) ELSE answers.completed = 0 END
ORDER BY q.rollout_id, q.id;

-- name: InsertGateExpiry :exec
INSERT INTO cd_gate_expiries (organization_id, rollout_id, gate_id, asked_at, due_at)
VALUES (@organization_id, @rollout_id, @gate_id, @asked_at, @due_at)
ON CONFLICT (organization_id, rollout_id, gate_id, asked_at) DO NOTHING;

-- name: DueGateExpiry :one
SELECT id, rollout_id, gate_id, asked_at FROM cd_gate_expiries
WHERE organization_id = @organization_id AND NOT settled AND due_at <= @at
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: SettleGateExpiry :exec
UPDATE cd_gate_expiries SET settled = true WHERE organization_id = @organization_id AND id = @id;

-- name: OrganizationsWithDueGateExpiries :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_gates(@at) AS organization_id;

-- name: EnvironmentApprovals :many
SELECT * FROM cd_environment_approvals WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) AND asks;

-- name: SaveEnvironmentApproval :exec
INSERT INTO cd_environment_approvals (organization_id, environment_id, reason, quorum, approver_group, requester_may_approve, expires_after_seconds, on_expiry)
VALUES (@organization_id, @environment_id, @reason, @quorum, @approver_group, @requester_may_approve, @expires_after_seconds, @on_expiry)
ON CONFLICT (organization_id, environment_id) DO UPDATE
SET asks = true, reason = excluded.reason, quorum = excluded.quorum, approver_group = excluded.approver_group,
    requester_may_approve = excluded.requester_may_approve, expires_after_seconds = excluded.expires_after_seconds, on_expiry = excluded.on_expiry;

-- name: DropEnvironmentApproval :exec
UPDATE cd_environment_approvals SET asks = false WHERE organization_id = @organization_id AND environment_id = @environment_id;

-- name: BrokenGlass :one
-- Across organizations, on purpose: the metrics are the installation's.
SELECT g.times::bigint AS times, COALESCE(g.last_at, 'epoch')::timestamptz AS last_at FROM cd_broken_glass() AS g;

-- name: Breaches :one
-- Across organizations, on purpose: the metrics are the installation's.
SELECT cd_breaches()::bigint;
