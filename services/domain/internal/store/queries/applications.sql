-- name: InsertApplication :one
INSERT INTO cd_applications (organization_id, name, description) VALUES (@organization_id, @name, @description) RETURNING *;

-- name: InsertService :one
INSERT INTO cd_services (organization_id, application_id, name, description)
VALUES (@organization_id, @application_id, @name, @description) RETURNING *;

-- name: InsertArtifactSource :one
INSERT INTO cd_artifact_sources (organization_id, service_id, source_ref, source_config, match_key)
VALUES (@organization_id, @service_id, @source_ref, @source_config, @match_key) RETURNING *;

-- name: CommitSources :one
SELECT count(*)::integer FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE s.organization_id = @organization_id AND s.application_id = @application_id AND a.match_key LIKE 'git:%';

-- name: LockApplication :one
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: LockApplications :exec
-- In the order of their numbers, so that two who lock some of the same do not wait for each other.
SELECT FROM cd_applications WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) ORDER BY id FOR NO KEY UPDATE;

-- name: ApplicationByName :one
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND name = @name;

-- name: ApplicationByFormerName :one
SELECT p.* FROM cd_application_aliases f JOIN cd_applications p ON p.organization_id = f.organization_id AND p.id = f.application_id
WHERE f.organization_id = @organization_id AND f.name = @name AND f.ended_at IS NULL;

-- name: RenameApplication :execrows
UPDATE cd_applications SET name = @name WHERE organization_id = @organization_id AND id = @id;

-- name: RenameService :execrows
-- NULL shows its name.
UPDATE cd_services SET display_name = sqlc.narg('display_name')::text WHERE organization_id = @organization_id AND id = @id;

-- name: FormerNames :many
-- The latest first.
SELECT application_id, name FROM cd_application_aliases WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND ended_at IS NULL
ORDER BY application_id, id DESC;

-- name: ApplicationsByID :many
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ServicesByID :many
SELECT * FROM cd_services WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ServicesByApplication :many
SELECT * FROM cd_services WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) ORDER BY application_id, id;

-- name: ArtifactSourcesByID :many
SELECT * FROM cd_artifact_sources WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ArtifactSourcesByService :many
SELECT * FROM cd_artifact_sources WHERE organization_id = @organization_id AND service_id = ANY(@ids::bigint[]) AND removed_at IS NULL ORDER BY service_id, id;

-- name: SaveArtifactSource :one
UPDATE cd_artifact_sources SET source_config = @source_config WHERE organization_id = @organization_id AND id = @id RETURNING *;

-- name: ListArtifactSources :many
SELECT a.* FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE a.organization_id = @organization_id AND a.id > @above AND a.id < @below AND a.removed_at IS NULL
  AND (@application_id::bigint = 0 OR s.application_id = @application_id::bigint)
ORDER BY CASE WHEN NOT @falling::boolean THEN a.id END, CASE WHEN @falling::boolean THEN a.id END DESC
LIMIT @at_most;

-- name: CountArtifactSources :one
SELECT count(*) FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE a.organization_id = @organization_id AND a.removed_at IS NULL AND (@application_id::bigint = 0 OR s.application_id = @application_id::bigint);

-- name: SetArtifactSourceState :one
-- NULL is a state that it is not in; 0 replaces it by nothing.
UPDATE cd_artifact_sources SET disabled_at = sqlc.narg('disabled_at')::timestamptz, removed_at = sqlc.narg('removed_at')::timestamptz,
    replaced_by = NULLIF(@replaced_by::bigint, 0)
WHERE organization_id = @organization_id AND id = @id RETURNING *;

-- name: RetireService :one
-- NULL brings it back.
UPDATE cd_services SET retired_at = sqlc.narg('at')::timestamptz WHERE organization_id = @organization_id AND id = @id RETURNING *;

-- name: ArchiveApplication :exec
-- NULL restores it.
UPDATE cd_applications SET archived_at = sqlc.narg('at')::timestamptz WHERE organization_id = @organization_id AND id = @id;

-- name: InsertArchiving :exec
INSERT INTO cd_archivings (organization_id, application_id, environment_id, archived, principal_type, principal_id, reason)
VALUES (@organization_id, @application_id, @environment_id, @archived, @principal_type, @principal_id, @reason);

-- name: ArchivingsByApplication :many
-- The latest twenty of each.
SELECT * FROM cd_archivings v
WHERE v.organization_id = @organization_id AND v.application_id = ANY(@ids::bigint[])
  AND (SELECT count(*) FROM cd_archivings n WHERE n.organization_id = v.organization_id AND n.application_id = v.application_id AND n.id > v.id) < 20
ORDER BY v.application_id, v.id DESC;

-- name: ArchivingsByEnvironment :many
-- The latest twenty of each.
SELECT * FROM cd_archivings v
WHERE v.organization_id = @organization_id AND v.environment_id = ANY(@ids::bigint[])
  AND (SELECT count(*) FROM cd_archivings n WHERE n.organization_id = v.organization_id AND n.environment_id = v.environment_id AND n.id > v.id) < 20
ORDER BY v.environment_id, v.id DESC;

-- name: Details :many
SELECT d.* FROM cd_details d WHERE d.organization_id = @organization_id AND d.id IN (
    SELECT a.id FROM cd_details a WHERE a.organization_id = @organization_id AND a.application_id = ANY(@applications::bigint[])
    UNION ALL SELECT e.id FROM cd_details e WHERE e.organization_id = @organization_id AND e.environment_id = ANY(@environments::bigint[])
    UNION ALL SELECT s.id FROM cd_details s WHERE s.organization_id = @organization_id AND s.service_id = ANY(@services::bigint[]));

-- name: SaveDetails :exec
INSERT INTO cd_details (organization_id, application_id, environment_id, service_id, labels, owner, links)
VALUES (@organization_id, @application_id, @environment_id, @service_id, @labels, @owner, @links)
ON CONFLICT ON CONSTRAINT cd_details_are_unique DO UPDATE SET labels = excluded.labels, owner = excluded.owner, links = excluded.links;

-- name: DescribeApplication :execrows
UPDATE cd_applications SET description = @description WHERE organization_id = @organization_id AND id = @id;

-- name: DescribeService :execrows
UPDATE cd_services SET description = @description WHERE organization_id = @organization_id AND id = @id;
