-- name: InsertApplication :one
INSERT INTO cd_applications (organization_id, name, description) VALUES (@organization_id, @name, @description) RETURNING *;

-- name: InsertService :one
INSERT INTO cd_services (organization_id, application_id, name, description)
VALUES (@organization_id, @application_id, @name, @description) RETURNING *;

-- name: InsertArtifactSource :one
INSERT INTO cd_artifact_sources (organization_id, service_id, source_ref, source_config, match_key)
VALUES (@organization_id, @service_id, @source_ref, @source_config, @match_key) RETURNING *;

-- name: LockApplication :one
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: LockApplications :exec
-- In the order of their numbers, so that two who lock some of the same do not wait for each other.
SELECT FROM cd_applications WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) ORDER BY id FOR NO KEY UPDATE;

-- name: ApplicationByName :one
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND name = @name;

-- name: ApplicationsByID :many
SELECT * FROM cd_applications WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ServicesByID :many
SELECT * FROM cd_services WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ServicesByApplication :many
SELECT * FROM cd_services WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) ORDER BY application_id, id;

-- name: ArtifactSourcesByID :many
SELECT * FROM cd_artifact_sources WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ArtifactSourcesByService :many
SELECT * FROM cd_artifact_sources WHERE organization_id = @organization_id AND service_id = ANY(@ids::bigint[]) ORDER BY service_id, id;

-- name: SaveArtifactSource :one
UPDATE cd_artifact_sources SET source_config = @source_config WHERE organization_id = @organization_id AND id = @id RETURNING *;

-- name: ListArtifactSources :many
SELECT a.* FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE a.organization_id = @organization_id AND a.id > @after AND (@application_id::bigint = 0 OR s.application_id = @application_id::bigint)
ORDER BY a.id LIMIT @at_most;

-- name: ArchiveApplication :exec
UPDATE cd_applications SET archived_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id AND archived_at IS NULL;
