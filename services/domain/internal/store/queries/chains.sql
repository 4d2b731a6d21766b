-- name: LockChains :exec
-- Until the transaction ends: triggers of kind chain of an organization are saved one after the other, so that no two of them close a circle.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', 'lockstep/chains', current_schema(), @organization_id::bigint), 0));

-- name: SignalChains :exec
-- The triggers with blocks of a rollout's application, when it has reached an environment, or, without one, has completed. Each rollout is one
-- cause: what a trigger knows already is left alone.
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at)
SELECT t.organization_id, t.id, 'rollout:' || r.id, @at::timestamptz, @at::timestamptz
FROM cd_rollouts r
JOIN cd_triggers t ON t.organization_id = r.organization_id AND t.application_id = r.application_id AND t.kind = 'chain' AND t.enabled AND t.removed_at IS NULL
LEFT JOIN cd_environments e ON e.organization_id = r.organization_id AND e.id = sqlc.narg(environment_id)::bigint
WHERE r.organization_id = @organization_id AND r.id = @rollout_id AND (t.config -> 'blocks') IS NOT NULL
  AND COALESCE(t.config ->> 'environment', '') = COALESCE(e.name, '')
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: NudgeChainsOfRollout :exec
-- The chains that have begun a rollout are decided about now.
UPDATE cd_trigger_signals h SET due_at = @at::timestamptz
FROM cd_trigger_signals s
JOIN cd_chain_nodes n ON n.organization_id = s.organization_id AND n.id = CASE WHEN s.cause LIKE 'chain:%' THEN split_part(s.cause, ':', 2)::bigint END
JOIN cd_chains c ON c.organization_id = n.organization_id AND c.id = n.chain_id
WHERE s.organization_id = @organization_id AND s.rollout_id = @rollout_id
  AND h.organization_id = c.organization_id AND h.trigger_id = c.trigger_id AND h.cause = 'rollout:' || c.rollout_id AND h.state = 'pending' AND h.due_at > @at::timestamptz;

-- name: NudgeChain :exec
-- A chain is decided about now.
UPDATE cd_trigger_signals h SET due_at = @at::timestamptz
FROM cd_chains c
WHERE c.organization_id = @organization_id AND c.id = @id
  AND h.organization_id = c.organization_id AND h.trigger_id = c.trigger_id AND h.cause = 'rollout:' || c.rollout_id AND h.state = 'pending' AND h.due_at > @at::timestamptz;

-- name: InsertChain :one
INSERT INTO cd_chains (organization_id, trigger_id, application_id, rollout_id, parent_id, blocks, began_at)
VALUES (@organization_id, @trigger_id, @application_id, @rollout_id, @parent_id, @blocks, @began_at)
RETURNING *;

-- name: InsertChainNodes :exec
INSERT INTO cd_chain_nodes (organization_id, chain_id, block, application_id, trigger_id, state, reason)
SELECT @organization_id, @chain_id, w.block, w.application_id, NULLIF(w.trigger_id, 0), w.state, w.reason
FROM (SELECT unnest(@blocks::integer[]) AS block, unnest(@applications::bigint[]) AS application_id, unnest(@triggers::bigint[]) AS trigger_id,
    unnest(@states::text[]) AS state, unnest(@reasons::text[]) AS reason) w;

-- name: LockChainOfRollout :one
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND rollout_id = @rollout_id FOR UPDATE;

-- name: LockChain :one
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: KeepChain :one
-- It does not end before the transaction does.
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND id = @id FOR SHARE;

-- name: ChainsByID :many
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ChainsByApplication :many
-- The latest chains that rollouts of applications began, the latest first.
SELECT c.* FROM unnest(@ids::bigint[]) AS a(id)
CROSS JOIN LATERAL (
    SELECT * FROM cd_chains n WHERE n.organization_id = @organization_id AND n.application_id = a.id ORDER BY n.id DESC LIMIT @most
) c
ORDER BY c.application_id, c.id DESC;

-- name: ChainsByRollout :many
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) ORDER BY rollout_id, id;

-- name: ChainsUnder :many
-- The chains that rollouts of chains began.
SELECT * FROM cd_chains WHERE organization_id = @organization_id AND parent_id = ANY(@ids::bigint[]) ORDER BY id;

-- name: ChainNodeByID :one
SELECT * FROM cd_chain_nodes WHERE organization_id = @organization_id AND id = @id;

-- name: ChainNodes :many
-- The applications of chains, with what their triggers decided and the rollouts that began.
SELECT n.id, n.chain_id, n.block, n.application_id, n.trigger_id, n.state, n.reason, COALESCE(n.rollout_id, s.rollout_id, 0)::bigint AS rollout_id,
    COALESCE(s.outcome, '')::text AS outcome, COALESCE(s.reason, '')::text AS decision, COALESCE(r.state, '')::text AS rollout_state
FROM cd_chain_nodes n
LEFT JOIN cd_trigger_signals s ON s.organization_id = n.organization_id AND s.trigger_id = n.trigger_id AND s.cause = 'chain:' || n.id
LEFT JOIN cd_rollouts r ON r.organization_id = n.organization_id AND r.id = CASE WHEN n.rollout_id IS NULL THEN s.rollout_id ELSE n.rollout_id END
WHERE n.organization_id = @organization_id AND n.chain_id = ANY(@ids::bigint[])
ORDER BY n.chain_id, n.block, n.application_id;

-- name: SaveChain :exec
UPDATE cd_chains SET state = @state, block = @block, reason = @reason, ended_at = @ended_at WHERE organization_id = @organization_id AND id = @id;

-- name: SaveChainNode :exec
UPDATE cd_chain_nodes SET state = @state, reason = @reason, rollout_id = @rollout_id WHERE organization_id = @organization_id AND id = @id;

-- name: ChainOfRollout :many
-- The chain that began a rollout: through the trigger's signal, or the node that it ended.
SELECT c.* FROM cd_chains c
JOIN cd_chain_nodes n ON n.organization_id = c.organization_id AND n.chain_id = c.id
WHERE c.organization_id = @organization_id AND n.id IN (
    SELECT e.id FROM cd_chain_nodes e WHERE e.organization_id = @organization_id AND e.rollout_id = @rollout_id
    UNION ALL
    SELECT CASE WHEN s.cause LIKE 'chain:%' THEN split_part(s.cause, ':', 2)::bigint END FROM cd_trigger_signals s
    WHERE s.organization_id = @organization_id AND s.rollout_id = @rollout_id
)
ORDER BY c.id LIMIT 1;

-- name: DriversOfApplications :many
SELECT DISTINCT p.application_id, b.driver_ref
FROM cd_application_environments p
JOIN cd_environments e ON e.organization_id = p.organization_id AND e.id = p.environment_id AND e.archived_at IS NULL
CROSS JOIN LATERAL (
    SELECT l.driver_ref FROM cd_environment_driver_bindings l WHERE l.organization_id = p.organization_id AND l.environment_id = p.environment_id
    ORDER BY l.version DESC LIMIT 1
) b
WHERE p.organization_id = @organization_id AND p.application_id = ANY(@ids::bigint[]) AND p.current
ORDER BY p.application_id, b.driver_ref;
