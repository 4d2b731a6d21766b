-- name: Feeds :many
SELECT * FROM cd_feeds WHERE organization_id = @organization_id AND revoked_at IS NULL ORDER BY name;

-- name: LockFeeds :exec
-- One change of the feeds of an organization at a time.
SELECT pg_advisory_xact_lock(hashtextextended('feeds', @organization_id::bigint));

-- name: InsertFeed :one
INSERT INTO cd_feeds (organization_id, name, kind, digest, principal_type, principal_id, principal_name)
VALUES (@organization_id, @name, @kind, @digest, @principal_type, @principal_id, @principal_name) RETURNING *;

-- name: RevokeFeed :exec
UPDATE cd_feeds SET revoked_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id AND revoked_at IS NULL;

-- name: FeedByDigest :one
SELECT * FROM cd_feeds WHERE organization_id = @organization_id AND digest = @digest AND kind = @kind AND revoked_at IS NULL;

-- name: FeedRead :exec
UPDATE cd_feeds SET last_read_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id;

-- name: ProductionChanges :many
-- The latest in environments of production, those of the newest rollouts first: as many are read off the index of each environment as are
-- wanted of all.
SELECT f.id, f.rollout_id, f.state, f.started_at::timestamptz AS started_at, f.updated_at, e.id AS environment_id, e.name AS environment, a.name AS application,
    s.name AS version_set, COALESCE(r.rollback_of, 0)::bigint AS rollback_of
FROM cd_environments e CROSS JOIN LATERAL (
    SELECT i.* FROM cd_rollout_environments i WHERE i.organization_id = e.organization_id AND i.environment_id = e.id AND i.started_at IS NOT NULL
    ORDER BY i.rollout_id DESC LIMIT @most::integer
) f
JOIN cd_rollouts r ON r.organization_id = f.organization_id AND r.id = f.rollout_id
JOIN cd_applications a ON a.organization_id = r.organization_id AND a.id = r.application_id
JOIN cd_version_sets s ON s.organization_id = r.organization_id AND s.id = r.version_set_id
WHERE e.organization_id = @organization_id AND e.tier = 'production'
ORDER BY f.rollout_id DESC, f.id DESC LIMIT @most::integer;

-- name: FeedFreezes :many
-- Those that have not ended long ago, with the names of their scope: first those that are in force or will be, by when they begin.
SELECT f.id, f.starts_at, f.ends_at, f.ended_at, f.updated_at, f.tiers, f.application_labels, f.environment_labels,
    (SELECT COALESCE(array_agg(e.name ORDER BY e.name), '{}') FROM cd_environments e WHERE e.organization_id = f.organization_id AND e.id = ANY(f.environment_ids))::text[] AS environments,
    (SELECT COALESCE(array_agg(a.name ORDER BY a.name), '{}') FROM cd_applications a WHERE a.organization_id = f.organization_id AND a.id = ANY(f.application_ids))::text[] AS applications
FROM cd_freezes f WHERE f.organization_id = @organization_id AND f.ends_at > @since
ORDER BY (f.ended_at IS NOT NULL OR f.ends_at <= @now::timestamptz), f.starts_at, f.id LIMIT @most;

-- name: ScheduledPipelines :many
-- The newest pipelines that have a schedule, or whose environments may have one.
SELECT a.id, a.name, f.definition, f.created_at FROM cd_applications a CROSS JOIN LATERAL (
    SELECT d.definition, d.created_at FROM cd_application_flow_definitions d WHERE d.organization_id = a.organization_id AND d.application_id = a.id
    ORDER BY d.version DESC LIMIT 1
) f
WHERE a.organization_id = @organization_id AND a.archived_at IS NULL AND (position('schedule' IN f.definition) > 0
    OR EXISTS (SELECT FROM cd_environment_checks c WHERE c.organization_id = @organization_id AND position('"schedule"' IN c.checks::text) > 0))
ORDER BY a.name LIMIT @most;

-- name: ScheduledEnvironments :many
-- What environments require by themselves, where that may have a schedule.
SELECT e.name, c.checks, c.updated_at FROM cd_environment_checks c JOIN cd_environments e ON e.organization_id = c.organization_id AND e.id = c.environment_id
WHERE c.organization_id = @organization_id AND e.archived_at IS NULL AND position('"schedule"' IN c.checks::text) > 0
ORDER BY e.name LIMIT @most;

-- name: Badges :many
SELECT b.*, a.name AS application FROM cd_badges b JOIN cd_applications a ON a.organization_id = b.organization_id AND a.id = b.application_id
WHERE b.organization_id = @organization_id ORDER BY a.name;

-- name: SaveBadge :exec
INSERT INTO cd_badges (organization_id, application_id, enabled, principal_type, principal_id, principal_name, changed_at)
VALUES (@organization_id, @application_id, @enabled, @principal_type, @principal_id, @principal_name, @changed_at)
ON CONFLICT (organization_id, application_id) DO UPDATE SET enabled = EXCLUDED.enabled, principal_type = EXCLUDED.principal_type,
    principal_id = EXCLUDED.principal_id, principal_name = EXCLUDED.principal_name, changed_at = EXCLUDED.changed_at;

-- name: BadgeState :one
SELECT c.standing, (c.live_version_set_id IS NOT NULL)::boolean AS live FROM cd_badges b
JOIN cd_applications a ON a.organization_id = b.organization_id AND a.id = b.application_id AND a.archived_at IS NULL
JOIN cd_cells c ON c.organization_id = a.organization_id AND c.application_id = a.id AND c.shown
JOIN cd_environments e ON e.organization_id = c.organization_id AND e.id = c.environment_id
WHERE b.organization_id = @organization_id AND b.enabled AND (a.name = @application
    OR a.id = (SELECT f.application_id FROM cd_application_aliases f WHERE f.organization_id = @organization_id AND f.name = @application AND f.ended_at IS NULL))
    AND (e.name = @environment OR e.display_name = @environment);
