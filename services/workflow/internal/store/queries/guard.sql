-- name: SavePassage :exec
-- Granted again, as after an abort, it is as of the later time. A rollout that has ended has none: grant and end lock the row of the run,
-- so that an end which is stored at the same time finds the passage, or the grant finds the end. One that was cancelled keeps its passages for a while.
WITH run AS (
    INSERT INTO guarded_run (organization, workflow) VALUES (sqlc.arg(organization), sqlc.arg(workflow))
    ON CONFLICT (organization, workflow) DO UPDATE SET revoked = guarded_run.revoked
    RETURNING revoked AND NOT kept AS revoked
), entrance AS (
    INSERT INTO environment_entrance (organization, environment, application, workflow, granted_at)
    SELECT sqlc.arg(organization), sqlc.arg(environment), sqlc.arg(application), sqlc.arg(workflow), sqlc.arg(granted_at)
    WHERE sqlc.arg(weight)::integer = 0
    ON CONFLICT (organization, environment, application) DO UPDATE SET workflow = excluded.workflow, granted_at = excluded.granted_at
    WHERE environment_entrance.granted_at < excluded.granted_at
)
INSERT INTO passage (organization, workflow, environment, weight, granted_at, places, pinned, application)
SELECT sqlc.arg(organization), sqlc.arg(workflow), sqlc.arg(environment), sqlc.arg(weight)::integer, sqlc.arg(granted_at), sqlc.arg(places), sqlc.arg(pinned),
    sqlc.arg(application)
FROM run WHERE NOT run.revoked
ON CONFLICT (organization, workflow, environment, weight) DO UPDATE SET
    granted_at = excluded.granted_at, places = excluded.places, pinned = excluded.pinned
WHERE passage.granted_at < excluded.granted_at;

-- name: SaveTargets :exec
-- What a target of a rollout has is pinned, so granted again it is the same. The row of the run is locked as for an entrance.
WITH run AS (
    INSERT INTO guarded_run (organization, workflow) VALUES (sqlc.arg(organization), sqlc.arg(workflow))
    ON CONFLICT (organization, workflow) DO UPDATE SET revoked = guarded_run.revoked
    RETURNING revoked AND NOT kept AS revoked
)
INSERT INTO passage_target (organization, workflow, environment, agent, places)
SELECT sqlc.arg(organization), sqlc.arg(workflow), sqlc.arg(environment), (p ->> 'agent_id')::bigint, jsonb_agg(p)
FROM run, jsonb_array_elements(sqlc.arg(places)::jsonb) AS p
WHERE NOT run.revoked AND p ->> 'agent_id' IS NOT NULL
GROUP BY (p ->> 'agent_id')::bigint
ON CONFLICT (organization, workflow, environment, agent) DO NOTHING;

-- name: SaveGuardedRun :exec
INSERT INTO guarded_run (organization, workflow, revoked, aborted_at, retried_at, cancelled_at, kept, left_environments)
VALUES (sqlc.arg(organization), sqlc.arg(workflow), sqlc.arg(revoked), sqlc.narg(aborted_at), sqlc.narg(retried_at), sqlc.narg(cancelled_at),
    sqlc.narg(cancelled_at)::timestamptz IS NOT NULL, sqlc.arg(left_environments))
ON CONFLICT (organization, workflow) DO UPDATE SET
    kept = guarded_run.kept OR guarded_run.cancelled_at IS NULL AND excluded.cancelled_at IS NOT NULL,
    left_environments = CASE WHEN guarded_run.cancelled_at IS NULL THEN excluded.left_environments ELSE guarded_run.left_environments END,
    cancelled_at = coalesce(guarded_run.cancelled_at, excluded.cancelled_at),
    revoked = guarded_run.revoked OR excluded.revoked,
    aborted_at = greatest(guarded_run.aborted_at, excluded.aborted_at),
    retried_at = greatest(guarded_run.retried_at, excluded.retried_at);

-- name: EndPassages :exec
-- A rollout that has ended changes nothing any more, whatever was granted.
WITH targets AS (
    DELETE FROM passage_target t WHERE t.organization = sqlc.arg(organization) AND t.workflow = sqlc.arg(workflow)
)
DELETE FROM passage p WHERE p.organization = sqlc.arg(organization) AND p.workflow = sqlc.arg(workflow);

-- name: ForgetCancelled :exec
-- What cancelled rollouts have left behind was taken back by then, or never is. Of all organizations for organization 0.
WITH over AS (
    UPDATE guarded_run g SET kept = false
    WHERE (g.organization = sqlc.arg(organization) OR sqlc.arg(organization) = 0) AND g.kept AND g.cancelled_at < sqlc.arg(before)::timestamptz
    RETURNING g.organization, g.workflow
), targets AS (
    DELETE FROM passage_target t USING over o WHERE t.organization = o.organization AND t.workflow = o.workflow
)
DELETE FROM passage p USING over o WHERE p.organization = o.organization AND p.workflow = o.workflow;

-- name: LockTerritory :one
SELECT name, sequence, protected, archived, places, fleet FROM territory
WHERE organization = $1 AND environment = $2 AND application = $3 FOR UPDATE;

-- name: SaveTerritory :exec
INSERT INTO territory (organization, environment, application, name, sequence, protected, archived, places, fleet)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (organization, environment, application) DO UPDATE SET
    name = excluded.name, sequence = excluded.sequence, protected = excluded.protected, archived = excluded.archived, places = excluded.places,
    fleet = excluded.fleet;

-- name: NextTerritoryVersion :one
INSERT INTO territory_version (organization, version) VALUES ($1, 1)
ON CONFLICT (organization) DO UPDATE SET version = territory_version.version + 1
RETURNING version;

-- name: GuardedRun :one
-- The run of a rollout is exempt if a domain service of an earlier release has created the rollout. The inputs that a run was started with
-- never change, and only the domain service starts such runs. Of the targets of waves only those of some agents are read: a passage of a
-- wave opens nothing without that of the environment's entrance.
SELECT coalesce((SELECT v.version FROM territory_version v WHERE v.organization = sqlc.arg(organization)), 0)::bigint AS version,
    coalesce((
        SELECT (e.inputs -> 'rollout' ->> 'passages') IS DISTINCT FROM 'true' FROM execution e
        WHERE e.organization = sqlc.arg(organization) AND e.workflow = sqlc.arg(workflow) AND e.workflow ~ '^rollout-[1-9][0-9]*$'
    ), false)::boolean AS exempt,
    coalesce((
        SELECT (e.inputs -> 'rollout' -> 'application' ->> 'id')::bigint FROM execution e
        WHERE e.organization = sqlc.arg(organization) AND e.workflow = sqlc.arg(workflow) AND e.workflow ~ '^rollout-[1-9][0-9]*$'
    ), 0)::bigint AS application,
    -- Only of a run whose inputs are not in its row as a whole.
    coalesce((
        SELECT e.inputs::text FROM execution e
        WHERE e.organization = sqlc.arg(organization) AND e.workflow = sqlc.arg(workflow) AND e.workflow ~ '^rollout-[1-9][0-9]*$'
          AND EXISTS (SELECT FROM payload_use u WHERE u.owner = e.id AND u.holder = 'start')
    ), '')::text AS inputs,
    coalesce(r.revoked, false) AS revoked, r.aborted_at, r.retried_at, r.cancelled_at,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
            'environment', p.environment, 'weight', p.weight, 'at', p.granted_at, 'pinned', to_jsonb(p.pinned),
            -- Asked only for what runs after a cancellation: another rollout of the application has entered the environment since.
            'overtaken', r.cancelled_at IS NOT NULL AND EXISTS (
                SELECT FROM environment_entrance n
                WHERE n.organization = p.organization AND n.environment = p.environment AND n.workflow <> p.workflow AND n.granted_at >= p.granted_at
                  AND (n.application = p.application OR n.application = 0 OR p.application = 0)
            ),
            'places', CASE WHEN p.weight > 0 THEN p.places ELSE p.places || coalesce((
                SELECT jsonb_agg(e) FROM passage_target t, jsonb_array_elements(t.places) AS e
                WHERE t.organization = p.organization AND t.workflow = p.workflow AND t.environment = p.environment
                  AND t.agent = ANY(sqlc.arg(agents)::bigint[])
            ), '[]') END
        ) ORDER BY p.environment, p.weight)
        FROM passage p
        WHERE p.organization = sqlc.arg(organization) AND p.workflow = sqlc.arg(workflow)
          AND (r.cancelled_at IS NULL OR p.environment = ANY(r.left_environments))
    ), '[]')::jsonb AS passages
FROM (SELECT 1) one LEFT JOIN guarded_run r ON r.organization = sqlc.arg(organization) AND r.workflow = sqlc.arg(workflow);

-- name: Territories :many
-- With the version as of the same snapshot.
SELECT v.version, t.environment, t.application, t.name, t.sequence, t.protected, t.archived, t.places, t.fleet
FROM territory_version v JOIN territory t ON t.organization = v.organization
WHERE v.organization = $1 ORDER BY t.environment, t.application;
