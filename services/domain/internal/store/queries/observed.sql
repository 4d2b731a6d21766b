-- Each of the three keeps the newest observation, and since when it says what it says. One that comes late changes nothing.

-- name: SaveHealth :exec
INSERT INTO cd_service_environment_healths AS h (organization_id, service_id, environment_id, health, reason, since, observed_at)
VALUES (@organization_id, @service_id, @environment_id, @health, @reason, @observed_at, @observed_at)
ON CONFLICT (organization_id, service_id, environment_id) DO UPDATE
SET health = excluded.health, reason = excluded.reason, observed_at = excluded.observed_at,
    since = CASE WHEN h.health = excluded.health THEN h.since ELSE excluded.observed_at END
WHERE h.observed_at < excluded.observed_at;

-- name: SaveReconciliation :exec
INSERT INTO cd_application_environment_reconciliations AS r (
    organization_id, application_environment_id, revision, expected_revision, automatic, drift, since, observed_at
) VALUES (@organization_id, @application_environment_id, @revision, @expected_revision, @automatic, @drift, @observed_at, @observed_at)
ON CONFLICT (organization_id, application_environment_id) DO UPDATE
SET revision = excluded.revision, expected_revision = excluded.expected_revision, automatic = excluded.automatic,
    drift = excluded.drift, observed_at = excluded.observed_at,
    since = CASE WHEN r.drift = excluded.drift THEN r.since ELSE excluded.observed_at END
WHERE r.observed_at < excluded.observed_at;

-- name: SaveContact :exec
INSERT INTO cd_environment_contacts AS c (organization_id, environment_id, reachable, reason, since, observed_at)
VALUES (@organization_id, @environment_id, @reachable, @reason, @observed_at, @observed_at)
ON CONFLICT (organization_id, environment_id) DO UPDATE
SET reachable = excluded.reachable, reason = excluded.reason, observed_at = excluded.observed_at,
    since = CASE WHEN c.reachable = excluded.reachable THEN c.since ELSE excluded.observed_at END
WHERE c.observed_at < excluded.observed_at;

-- name: HealthsByEnvironment :many
SELECT * FROM cd_service_environment_healths WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) ORDER BY service_id;

-- name: Reconciliations :many
SELECT * FROM cd_application_environment_reconciliations
WHERE organization_id = @organization_id AND application_environment_id = ANY(@ids::bigint[]);

-- name: Contacts :many
SELECT * FROM cd_environment_contacts WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]);
