-- name: InsertEnvironment :one
INSERT INTO cd_environments (organization_id, name, description, tier) VALUES (@organization_id, @name, @description, @tier) RETURNING *;

-- name: InsertDriverBinding :one
INSERT INTO cd_environment_driver_bindings (organization_id, environment_id, version, driver_ref, driver_config, fleet)
VALUES (@organization_id, @environment_id, @version, @driver_ref, @driver_config, @fleet) RETURNING *;

-- name: BoundEnvironments :many
-- All, or those with one of some names: a plan of a rollout locks what it goes to (D65).
SELECT sqlc.embed(e), sqlc.embed(b)
FROM cd_environments e
JOIN cd_environment_driver_bindings b ON b.organization_id = e.organization_id AND b.environment_id = e.id
WHERE e.organization_id = @organization_id AND e.archived_at IS NULL AND (sqlc.narg(names)::text[] IS NULL OR e.name = ANY(sqlc.narg(names)::text[]))
  AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l WHERE l.organization_id = e.organization_id AND l.environment_id = e.id)
ORDER BY e.id FOR SHARE OF e;

-- name: ClaimingEnvironments :many
-- Without a lock, and with those that are archived: what belongs to them stays theirs.
SELECT sqlc.embed(e), sqlc.embed(b)
FROM cd_environments e
JOIN cd_environment_driver_bindings b ON b.organization_id = e.organization_id AND b.environment_id = e.id
WHERE e.organization_id = @organization_id
  AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l WHERE l.organization_id = e.organization_id AND l.environment_id = e.id)
ORDER BY e.id;

-- name: LockEnvironment :one
SELECT sqlc.embed(e), sqlc.embed(b)
FROM cd_environments e
JOIN cd_environment_driver_bindings b ON b.organization_id = e.organization_id AND b.environment_id = e.id
WHERE e.organization_id = @organization_id AND e.id = @id
  AND b.version = (SELECT max(l.version) FROM cd_environment_driver_bindings l WHERE l.organization_id = e.organization_id AND l.environment_id = e.id)
FOR NO KEY UPDATE OF e;

-- name: SaveEnvironment :execrows
UPDATE cd_environments SET readiness = @readiness, readiness_reason = @readiness_reason, onboarding_attempt = @onboarding_attempt
WHERE organization_id = @organization_id AND id = @id;

-- name: DescribeEnvironment :execrows
UPDATE cd_environments SET description = @description WHERE organization_id = @organization_id AND id = @id;

-- name: WantSetups :exec
UPDATE cd_application_environments SET readiness = 'pending', readiness_reason = @reason, setup_wanted = true
WHERE organization_id = @organization_id AND environment_id = @environment_id AND current;

-- name: SetEnvironmentWorkflowRef :exec
UPDATE cd_environments SET workflow_ref = @workflow_ref WHERE organization_id = @organization_id AND id = @id;

-- name: KeepBundle :exec
INSERT INTO cd_driver_bundles (organization_id, digest, driver_ref, content) VALUES (@organization_id, @digest, @driver_ref, @content)
ON CONFLICT (organization_id, digest) DO NOTHING;

-- name: BundleContent :one
SELECT content FROM cd_driver_bundles WHERE organization_id = @organization_id AND digest = @digest;

-- name: EnvironmentByName :one
SELECT * FROM cd_environments WHERE organization_id = @organization_id AND name = @name;

-- name: EnvironmentByDisplayName :one
SELECT * FROM cd_environments WHERE organization_id = @organization_id AND lower(display_name) = lower(@name::text) AND display_name = @name::text;

-- name: EnvironmentsShownAs :many
-- The names of the environments that are shown by some others.
SELECT name, display_name::text AS display_name FROM cd_environments
WHERE organization_id = @organization_id AND lower(display_name) = ANY(SELECT lower(s) FROM unnest(@shown::text[]) s) AND display_name = ANY(@shown::text[]);

-- name: RenameEnvironment :execrows
-- NULL shows its name.
UPDATE cd_environments SET display_name = sqlc.narg('display_name')::text WHERE organization_id = @organization_id AND id = @id;

-- name: EnvironmentsByID :many
SELECT * FROM cd_environments WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: DriverBindingsByID :many
SELECT * FROM cd_environment_driver_bindings WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: DriverBindingsByEnvironment :many
SELECT * FROM cd_environment_driver_bindings WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) ORDER BY environment_id, version DESC;

-- name: ArchiveEnvironment :exec
-- NULL restores it.
UPDATE cd_environments SET archived_at = sqlc.narg('at')::timestamptz WHERE organization_id = @organization_id AND id = @id;
