-- name: Reports :many
-- What this service has published about runs. The id of an event begins with the handle of its run.
SELECT e.id, e.source, e.event_id, e.type, x.workflow, e.occurred_at
FROM event e JOIN execution x ON x.ref = split_part(e.event_id, '/', 1) AND x.organization = e.organization
WHERE e.organization = sqlc.arg(organization) AND e.source = sqlc.arg(source) AND e.id > sqlc.arg(after) AND e.received_at >= sqlc.arg(since)
  AND starts_with(e.type, sqlc.arg(prefix)) AND (sqlc.arg(workflow)::text = '' OR x.workflow = sqlc.arg(workflow)::text)
ORDER BY e.id LIMIT sqlc.arg(at_most)::integer;

-- name: ReportsByID :many
SELECT e.event_id, e.type, e.data, e.occurred_at, x.workflow, coalesce(t.parent, '')::text AS trace
FROM event e JOIN execution x ON x.ref = split_part(e.event_id, '/', 1) AND x.organization = e.organization LEFT JOIN trace t ON t.execution = x.id
WHERE e.organization = sqlc.arg(organization) AND e.source = sqlc.arg(source) AND e.event_id = ANY (sqlc.arg(event_ids)::text[])
ORDER BY e.id;

-- name: GrantedPassages :many
-- The events by which the domain service granted passages, the last of each.
SELECT g.workflow::text AS workflow, g.gate::text AS gate, g.pinned::json AS pinned
FROM (
    SELECT DISTINCT ON (workflow, gate) 'rollout-' || (e.data ->> 'rollout_id') AS workflow, e.data ->> 'gate_id' AS gate,
        coalesce(e.data -> 'pinned_weights', '[]') AS pinned
    FROM event e
    WHERE e.organization = sqlc.arg(organization) AND e.type = sqlc.arg(type) AND e.source = sqlc.arg(source) AND e.received_at >= sqlc.arg(since)
      AND 'rollout-' || (e.data ->> 'rollout_id') = ANY (sqlc.arg(workflows)::text[])
    ORDER BY workflow, gate, e.id DESC
) g ORDER BY g.workflow, g.gate;

-- name: Branches :many
-- The branches of repositories that belong to environments. '*' is any repository: those of a driver that names none.
SELECT DISTINCT (p.place ->> 'repository')::text AS repository, coalesce(p.place ->> 'branch', '')::text AS branch
FROM territory t, jsonb_array_elements(t.places) AS p(place)
WHERE t.organization = sqlc.arg(organization) AND coalesce(p.place ->> 'repository', '*') <> '*'
ORDER BY repository, branch OFFSET sqlc.arg(from_row)::integer LIMIT sqlc.arg(at_most)::integer;
