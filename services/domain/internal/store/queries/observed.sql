-- Each of the three keeps the newest observation, and since when it says what it says. One that comes late changes nothing.

-- name: SaveHealth :one
-- Answers whether a clock may have to start or stop: it says something new, or that the service is degraded. No row when it
-- came late.
INSERT INTO cd_service_environment_healths AS h (organization_id, service_id, environment_id, health, reason, since, observed_at)
VALUES (@organization_id, @service_id, @environment_id, @health, @reason, @observed_at, @observed_at)
ON CONFLICT (organization_id, service_id, environment_id) DO UPDATE
SET health = excluded.health, reason = excluded.reason, observed_at = excluded.observed_at,
    since = CASE WHEN h.health = excluded.health THEN h.since ELSE excluded.observed_at END
WHERE h.observed_at < excluded.observed_at
RETURNING (h.health = 'degraded' OR h.since = h.observed_at)::boolean AS counts;

-- name: MayObserve :one
-- Whether a rollout, or the setup of an application environment, is of the application and the environment that a report is about.
SELECT EXISTS (
    SELECT FROM cd_application_environments ae
    LEFT JOIN cd_services s ON s.organization_id = ae.organization_id AND s.application_id = ae.application_id AND s.id = @service_id::bigint
    WHERE ae.organization_id = @organization_id
      AND CASE WHEN @application_environment_id::bigint <> 0 THEN ae.id = @application_environment_id::bigint
          ELSE s.id IS NOT NULL AND ae.environment_id = @environment_id::bigint END
      AND (ae.id = @setup::bigint OR EXISTS (
          SELECT FROM cd_rollouts r
          JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
          WHERE r.organization_id = ae.organization_id AND r.id = @rollout_id::bigint
            AND r.application_id = ae.application_id AND e.environment_id = ae.environment_id
      ))
) AS may;

-- name: RolloutServing :one
-- The last rollout that has begun to deploy a service in an environment. None of a retired service: nothing follows from its health.
SELECT r.id
FROM cd_services s
JOIN cd_rollouts r ON r.organization_id = s.organization_id AND r.application_id = s.application_id
JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id AND d.service_id = s.id
WHERE s.organization_id = @organization_id AND s.id = @service_id AND e.environment_id = @environment_id AND d.started_at IS NOT NULL
  AND s.retired_at IS NULL
ORDER BY r.id DESC LIMIT 1;

-- name: DegradedSince :one
-- Since when anything is degraded that nobody but this rollout has deployed since. A deployment's own end counts where
-- nothing was seen after it. What was seen before it began, or before it became healthy, was not its doing. A retired service is
-- taken away by people, and is left out.
SELECT (CASE WHEN h.health = 'degraded' THEN GREATEST(h.since, CASE WHEN d.state = 'healthy' THEN d.finished_at ELSE d.started_at END) ELSE d.finished_at END)::timestamptz AS since
FROM cd_rollouts r
JOIN cd_rollout_environments e ON e.organization_id = r.organization_id AND e.rollout_id = r.id
JOIN cd_deployments d ON d.organization_id = e.organization_id AND d.rollout_environment_id = e.id
JOIN cd_services s ON s.organization_id = d.organization_id AND s.id = d.service_id AND s.retired_at IS NULL
LEFT JOIN cd_service_environment_healths h ON h.organization_id = d.organization_id AND h.service_id = d.service_id AND h.environment_id = e.environment_id
WHERE r.organization_id = @organization_id AND r.id = @rollout_id AND d.started_at IS NOT NULL
  AND (h.health = 'degraded' OR d.state = 'degraded' AND (h.observed_at IS NULL OR h.observed_at < d.finished_at))
  AND NOT EXISTS (
    SELECT FROM cd_rollouts n
    JOIN cd_rollout_environments f ON f.organization_id = n.organization_id AND f.rollout_id = n.id AND f.environment_id = e.environment_id
    JOIN cd_deployments g ON g.organization_id = f.organization_id AND g.rollout_environment_id = f.id AND g.service_id = d.service_id
    WHERE n.organization_id = r.organization_id AND n.application_id = r.application_id AND n.id > r.id AND g.started_at IS NOT NULL
  )
ORDER BY since LIMIT 1;

-- name: SaveReconciliation :exec
-- Drift is since something has differed, whatever it is meanwhile.
INSERT INTO cd_application_environment_reconciliations AS r (
    organization_id, application_environment_id, revision, expected_revision, automatic, drift, objects, since, observed_at
) VALUES (@organization_id, @application_environment_id, @revision, @expected_revision, @automatic, @drift, @objects, @observed_at, @observed_at)
ON CONFLICT (organization_id, application_environment_id) DO UPDATE
SET revision = excluded.revision, expected_revision = excluded.expected_revision, automatic = excluded.automatic,
    drift = excluded.drift, objects = excluded.objects, observed_at = excluded.observed_at,
    since = CASE WHEN (r.objects = '[]') = (excluded.objects = '[]') THEN r.since ELSE excluded.observed_at END
WHERE r.observed_at < excluded.observed_at;

-- name: SaveContact :one
-- Answers whether it says something new. No row when it came late.
INSERT INTO cd_environment_contacts AS c (organization_id, environment_id, reachable, reason, since, observed_at)
VALUES (@organization_id, @environment_id, @reachable, @reason, @observed_at, @observed_at)
ON CONFLICT (organization_id, environment_id) DO UPDATE
SET reachable = excluded.reachable, reason = excluded.reason, observed_at = excluded.observed_at,
    since = CASE WHEN c.reachable = excluded.reachable THEN c.since ELSE excluded.observed_at END
WHERE c.observed_at < excluded.observed_at
RETURNING (c.since = c.observed_at)::boolean AS news;

-- name: HealthsByEnvironment :many
SELECT * FROM cd_service_environment_healths WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) ORDER BY service_id;

-- name: HealthsOfServices :many
SELECT * FROM cd_service_environment_healths
WHERE organization_id = @organization_id AND service_id = ANY(@services::bigint[]) AND environment_id = ANY(@environments::bigint[]) ORDER BY service_id;

-- name: Reconciliations :many
-- With when a rollout has changed something there last, and why looking for drift has failed since it succeeded.
SELECT sqlc.embed(r), c.live_since, s.started_at, s.finished_at, l.failed_at, COALESCE(l.failure, '')::text AS failure
FROM cd_application_environment_reconciliations r
JOIN cd_application_environments e ON e.organization_id = r.organization_id AND e.id = r.application_environment_id
LEFT JOIN cd_drift_looks l ON l.organization_id = e.organization_id AND l.application_environment_id = e.id
LEFT JOIN cd_cells c ON c.organization_id = e.organization_id AND c.application_id = e.application_id AND c.environment_id = e.environment_id
LEFT JOIN cd_rollout_environments s ON s.organization_id = c.organization_id AND s.id = c.latest_rollout_environment_id
WHERE r.organization_id = @organization_id AND r.application_environment_id = ANY(@ids::bigint[]);

-- name: Contacts :many
SELECT * FROM cd_environment_contacts WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]);
