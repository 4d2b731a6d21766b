-- name: InsertRolloutTransition :exec
INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type, principal_id, reason, triggered_by, conditions, breach, created_at)
VALUES (@organization_id, @rollout_id, @from_state, @to_state, @event, @gate_id, @principal_type, @principal_id, @reason, @triggered_by, sqlc.narg(conditions)::jsonb, @breach, @created_at);

-- name: InsertRolloutEnvironmentTransition :exec
INSERT INTO cd_rollout_environment_transitions (organization_id, rollout_environment_id, from_state, to_state, event, principal_type, principal_id, reason, triggered_by, created_at)
VALUES (@organization_id, @rollout_environment_id, @from_state, @to_state, @event, @principal_type, @principal_id, @reason, @triggered_by, @created_at);

-- name: InsertDeploymentTransitions :exec
-- In the order of the arrays; an empty text and 0 are null.
INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, gate_id, principal_type, principal_id, reason, triggered_by, created_at)
SELECT @organization_id::bigint, r.deployment_id, NULLIF(r.from_state, ''), r.to_state, r.event, NULLIF(r.gate_id, ''), r.principal_type,
    NULLIF(r.principal_id, 0), NULLIF(r.reason, ''), NULLIF(r.triggered_by, ''), r.created_at
FROM (
    SELECT unnest(@deployment_ids::bigint[]) AS deployment_id, unnest(@from_states::text[]) AS from_state, unnest(@to_states::text[]) AS to_state,
        unnest(@events::text[]) AS event, unnest(@gate_ids::text[]) AS gate_id, unnest(@principal_types::text[]) AS principal_type,
        unnest(@principal_ids::bigint[]) AS principal_id, unnest(@reasons::text[]) AS reason, unnest(@triggered_by::text[]) AS triggered_by,
        unnest(@created_at::timestamptz[]) AS created_at
) AS r;

-- name: GateWords :many
-- What the rollouts' own journals say of gates, holds and broken glass.
SELECT id, rollout_id, from_state, to_state, event, gate_id, principal_type, principal_id, reason, conditions, created_at FROM cd_rollout_transitions
WHERE organization_id = @organization_id AND rollout_id = ANY(@ids::bigint[]) AND (gate_id IS NOT NULL OR event IN ('pause', 'resume', 'abort', 'retry', 'break_glass', 'bypass_freeze'))
ORDER BY rollout_id, id;

-- name: GatesByDeployment :many
SELECT deployment_id, gate_id, event, created_at FROM cd_deployment_transitions
WHERE organization_id = @organization_id AND deployment_id = ANY(@ids::bigint[]) AND gate_id IS NOT NULL
ORDER BY deployment_id, id;

-- name: JournalsByRollout :many
-- The three journals of each rollout as one story: a single sequence numbers them.
SELECT parent.id::bigint AS rollout_id, page.id, page.kind, page.subject_id, page.from_state, page.to_state, page.event, page.gate_id,
       page.principal_type, page.principal_id, page.reason, page.triggered_by, page.conditions, page.breach, page.created_at
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (SELECT rows.* FROM (
    SELECT t.id, 'rollout'::text AS kind, t.rollout_id AS subject_id, t.from_state, t.to_state, t.event, t.gate_id,
           t.principal_type, t.principal_id, t.reason, t.triggered_by, t.conditions, t.breach, t.created_at
    FROM cd_rollout_transitions t
    WHERE t.organization_id = @organization_id AND t.rollout_id = parent.id AND t.id > @above AND t.id < @below
    UNION ALL
    SELECT u.id, 'rolloutenvironment'::text, u.rollout_environment_id, u.from_state, u.to_state, u.event, NULL::text,
           u.principal_type, u.principal_id, u.reason, u.triggered_by, NULL::jsonb, false, u.created_at
    FROM cd_rollout_environment_transitions u
    JOIN cd_rollout_environments e ON e.organization_id = u.organization_id AND e.id = u.rollout_environment_id
    WHERE u.organization_id = @organization_id AND e.rollout_id = parent.id AND u.id > @above AND u.id < @below
    UNION ALL
    SELECT v.id, 'deployment'::text, v.deployment_id, v.from_state, v.to_state, v.event, v.gate_id,
           v.principal_type, v.principal_id, v.reason, v.triggered_by, NULL::jsonb, false, v.created_at
    FROM cd_deployment_transitions v
    JOIN cd_deployments d ON d.organization_id = v.organization_id AND d.id = v.deployment_id
    JOIN cd_rollout_environments f ON f.organization_id = d.organization_id AND f.id = d.rollout_environment_id
    WHERE v.organization_id = @organization_id AND f.rollout_id = parent.id AND v.id > @above AND v.id < @below
    ) rows
    ORDER BY CASE WHEN NOT @falling::boolean THEN rows.id END, CASE WHEN @falling::boolean THEN rows.id END DESC LIMIT @at_most
) page
ORDER BY parent.id, CASE WHEN NOT @falling::boolean THEN page.id END, CASE WHEN @falling::boolean THEN page.id END DESC;

-- name: CountJournalsByRollout :many
SELECT parent.id::bigint AS id, ((SELECT count(*) FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id AND t.rollout_id = parent.id)
    + (SELECT count(*) FROM cd_rollout_environment_transitions u
       JOIN cd_rollout_environments e ON e.organization_id = u.organization_id AND e.id = u.rollout_environment_id
       WHERE u.organization_id = @organization_id AND e.rollout_id = parent.id)
    + (SELECT count(*) FROM cd_deployment_transitions v
       JOIN cd_deployments d ON d.organization_id = v.organization_id AND d.id = v.deployment_id
       JOIN cd_rollout_environments f ON f.organization_id = d.organization_id AND f.id = d.rollout_environment_id
       WHERE v.organization_id = @organization_id AND f.rollout_id = parent.id))::bigint AS items
FROM unnest(@ids::bigint[]) AS parent(id);

-- name: CausesByRollout :many
-- What led to each rollout (D58): how it and each one before it was created, which is its first row, and how each one before it has failed last; the first cause
-- first, at most ten rollouts. One before is what it takes back, or what the row says in words that only Lockstep writes: the name of a
-- trigger has no space, and the text of an event is no part of what matches. Orders begin with the parent, so that its index is walked;
-- a limit keeps what reads text apart from the comparison, which under row security would else be no condition of an index.
WITH RECURSIVE line AS (
    SELECT asked.id AS asked, asked.id, 0 AS depth, 9223372036854775807::bigint AS below FROM unnest(@ids::bigint[]) AS asked(id)
    UNION ALL
    SELECT l.asked, p.id, l.depth + 1, before.created
    FROM line l
    CROSS JOIN LATERAL (SELECT t.id AS created, COALESCE(r.rollback_of,
            substring(t.triggered_by FROM '^(?:queue: asked for at [^ ]+: )?trigger [^ ]+ \(chain\): .* which follows rollout_([0-9]{1,18})$')::bigint) AS id
        FROM cd_rollouts r
        CROSS JOIN LATERAL (SELECT f.id, f.triggered_by FROM cd_rollout_transitions f
            WHERE f.organization_id = @organization_id AND f.rollout_id = l.id ORDER BY f.rollout_id, f.id LIMIT 1) t
        WHERE r.organization_id = @organization_id AND r.id = l.id LIMIT 1) before
    CROSS JOIN LATERAL (SELECT b.id FROM cd_rollouts b
        WHERE b.organization_id = @organization_id AND b.id = before.id AND b.id < l.id LIMIT 1) p
    WHERE l.depth < 9
)
SELECT l.asked::bigint AS asked, rows.id, rows.kind, rows.subject_id, rows.from_state, rows.to_state, rows.event, rows.gate_id,
    rows.principal_type, rows.principal_id, rows.reason, rows.triggered_by, rows.conditions, rows.breach, rows.created_at
FROM line l
CROSS JOIN LATERAL (
    (SELECT t.id, 'rollout'::text AS kind, t.rollout_id AS subject_id, t.from_state, t.to_state, t.event, t.gate_id, t.principal_type,
            t.principal_id, t.reason, t.triggered_by, t.conditions, t.breach, t.created_at
     FROM cd_rollout_transitions t
     WHERE t.organization_id = @organization_id AND t.rollout_id = l.id
     ORDER BY t.rollout_id, t.id LIMIT 1)
    UNION ALL
    (SELECT t.id, 'rollout'::text, t.rollout_id, t.from_state, t.to_state, t.event, t.gate_id, t.principal_type, t.principal_id, t.reason,
            t.triggered_by, t.conditions, t.breach, t.created_at
     FROM cd_rollout_transitions t
     WHERE t.organization_id = @organization_id AND t.rollout_id = l.id AND t.event = 'fail' AND l.depth > 0 AND t.id < l.below
     ORDER BY t.rollout_id DESC, t.id DESC LIMIT 1)
    UNION ALL
    (SELECT v.id, 'deployment'::text, v.deployment_id, v.from_state, v.to_state, v.event, v.gate_id, v.principal_type, v.principal_id,
            v.reason, v.triggered_by, NULL::jsonb, false, v.created_at
     FROM cd_rollout_environments e
     JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id
     CROSS JOIN LATERAL (SELECT w.* FROM cd_deployment_transitions w
        WHERE w.organization_id = d.organization_id AND w.deployment_id = d.id AND w.event IN ('fail', 'degrade') AND w.id < l.below
        ORDER BY w.deployment_id DESC, w.id DESC LIMIT 1) v
     WHERE e.organization_id = @organization_id AND e.rollout_id = l.id AND l.depth > 0
     ORDER BY v.id DESC LIMIT 1)
) rows
ORDER BY l.asked, rows.id;
