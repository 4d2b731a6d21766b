-- name: SaveChildren :exec
-- Children of one commit, each with the run that its line descends from. One that exists stays as it is.
INSERT INTO child (organization, workflow, parent, root, detached, started_at)
SELECT u.organization, u.workflow, u.parent,
    coalesce((SELECT c.root FROM child c WHERE c.organization = u.organization AND c.workflow = u.parent_workflow), u.parent_workflow),
    u.detached, u.at
FROM (
    SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(workflows)::text[]) AS workflow,
        unnest(sqlc.arg(parents)::bigint[]) AS parent, unnest(sqlc.arg(parent_workflows)::text[]) AS parent_workflow,
        unnest(sqlc.arg(detacheds)::boolean[]) AS detached, unnest(sqlc.arg(ats)::timestamptz[]) AS at
) AS u
ON CONFLICT DO NOTHING;

-- name: OrphanChildren :exec
-- Marks the children of runs that have ended, where they have not and are not detached.
UPDATE child SET orphaned = true
FROM (SELECT unnest(sqlc.arg(organizations)::bigint[]) AS organization, unnest(sqlc.arg(parents)::bigint[]) AS parent) AS p
WHERE child.organization = ANY (ARRAY[p.organization]) AND child.parent = p.parent AND NOT child.detached AND NOT child.orphaned
  AND EXISTS (
      SELECT FROM execution e WHERE e.organization = child.organization AND e.workflow = child.workflow AND e.state IN ('running', 'parked')
  );

-- name: Orphans :many
SELECT c.organization, c.workflow, coalesce((SELECT e.workflow FROM execution e WHERE e.id = c.parent), '')::text AS parent
FROM child c WHERE c.orphaned ORDER BY c.organization, c.workflow LIMIT sqlc.arg(most);

-- name: SettleOrphan :exec
UPDATE child SET orphaned = false WHERE organization = $1 AND workflow = $2;

-- name: RootOf :one
SELECT root FROM child WHERE organization = $1 AND workflow = $2;

-- name: LastOf :one
-- The end of an execution: its state, error and last entry.
SELECT e.state, e.ref, coalesce(e.ended_at, e.created_at)::timestamptz AS ended_at, e.error, n.value
FROM execution e
JOIN LATERAL (SELECT entry.value FROM entry WHERE entry.execution = e.id ORDER BY entry.seq DESC LIMIT 1) AS n ON true
WHERE e.organization = $1 AND e.workflow = $2 AND e.state NOT IN ('running', 'parked');
