-- name: SourcesByMatchKey :many
SELECT a.id AS source_id, a.service_id, s.application_id, a.source_ref, a.source_config
FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
JOIN cd_applications p ON p.organization_id = s.organization_id AND p.id = s.application_id AND p.archived_at IS NULL
WHERE a.organization_id = @organization_id AND a.match_key = @match_key
ORDER BY s.application_id, a.id;

-- name: VersionNames :many
SELECT name, digest FROM cd_versions
WHERE organization_id = @organization_id AND artifact_source_id = @artifact_source_id AND (name = ANY(@names::text[]) OR digest = @digest);

-- name: InsertVersion :one
INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at)
VALUES (@organization_id, @artifact_source_id, @name, @digest, @reference, @published_at) RETURNING *;

-- name: LatestVersions :many
SELECT s.id AS service_id, a.id AS artifact_source_id, COALESCE(v.id, 0)::bigint AS version_id
FROM cd_services s
JOIN cd_artifact_sources a ON a.organization_id = s.organization_id AND a.service_id = s.id
LEFT JOIN LATERAL (
    SELECT l.id FROM cd_versions l
    WHERE l.organization_id = a.organization_id AND l.artifact_source_id = a.id
    ORDER BY l.published_at DESC, l.id DESC LIMIT 1
) v ON true
WHERE s.organization_id = @organization_id AND s.application_id = @application_id
ORDER BY a.id;

-- name: VersionSetExists :one
SELECT EXISTS (
    SELECT FROM cd_version_sets WHERE organization_id = @organization_id AND application_id = @application_id AND entries_digest = @entries_digest
);

-- name: CountVersionSets :one
SELECT count(*) FROM cd_version_sets WHERE organization_id = @organization_id AND application_id = @application_id;

-- name: InsertVersionSet :one
INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count, traceparent)
VALUES (@organization_id, @application_id, @name, @entries_digest, @entries_count, @traceparent) RETURNING *;

-- name: InsertVersionSetEntry :exec
INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id)
VALUES (@organization_id, @version_set_id, @version_id, @artifact_source_id, @service_id);

-- name: VersionsByID :many
SELECT * FROM cd_versions WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: VersionsBySource :many
SELECT sqlc.embed(v)
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (SELECT n.id FROM cd_versions n
    WHERE n.organization_id = @organization_id AND n.artifact_source_id = parent.id AND n.id < @before ORDER BY n.id DESC LIMIT @at_most) page
JOIN cd_versions v ON v.organization_id = @organization_id AND v.id = page.id
ORDER BY v.artifact_source_id, v.id DESC;

-- name: VersionSetsByID :many
SELECT * FROM cd_version_sets WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: VersionSetsByApplication :many
SELECT sqlc.embed(v)
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (SELECT n.id FROM cd_version_sets n
    WHERE n.organization_id = @organization_id AND n.application_id = parent.id AND n.id < @before ORDER BY n.id DESC LIMIT @at_most) page
JOIN cd_version_sets v ON v.organization_id = @organization_id AND v.id = page.id
ORDER BY v.application_id, v.id DESC;

-- name: EntriesByVersionSet :many
SELECT version_set_id, service_id, artifact_source_id, version_id FROM cd_version_set_entries
WHERE organization_id = @organization_id AND version_set_id = ANY(@ids::bigint[]) ORDER BY version_set_id, service_id, artifact_source_id;

-- name: VersionsByDeployment :many
SELECT d.id AS deployment_id, sqlc.embed(v)
FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
JOIN cd_version_set_entries n ON n.organization_id = r.organization_id AND n.version_set_id = r.version_set_id AND n.service_id = d.service_id
JOIN cd_versions v ON v.organization_id = n.organization_id AND v.id = n.version_id
WHERE d.organization_id = @organization_id AND d.id = ANY(@ids::bigint[])
ORDER BY d.id, n.artifact_source_id;
