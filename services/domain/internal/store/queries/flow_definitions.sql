-- name: InsertFlowDefinition :one
INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition)
VALUES (@organization_id, @application_id, @version, @definition) RETURNING *;

-- name: FlowDefinitionsByID :many
SELECT * FROM cd_application_flow_definitions WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: LatestFlowDefinitions :many
SELECT DISTINCT ON (application_id) * FROM cd_application_flow_definitions
WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) ORDER BY application_id, version DESC;

-- name: LastRolledOut :one
-- The pipeline of an application's newest rollout.
SELECT f.* FROM cd_rollouts r
JOIN cd_application_flow_definitions f ON f.organization_id = r.organization_id AND f.id = r.flow_definition_id
WHERE r.organization_id = @organization_id AND r.application_id = @application_id
ORDER BY r.id DESC LIMIT 1;

-- name: PipelinesTo :many
SELECT DISTINCT ON (f.application_id) f.* FROM cd_application_flow_definitions f
JOIN cd_application_environments e ON e.organization_id = @organization_id AND e.application_id = f.application_id AND e.environment_id = @environment_id AND e.current
JOIN cd_applications a ON a.organization_id = @organization_id AND a.id = f.application_id AND a.archived_at IS NULL
WHERE f.organization_id = @organization_id AND f.application_id > @after::bigint
ORDER BY f.application_id, f.version DESC LIMIT @most::integer;

-- name: WantSetup :one
INSERT INTO cd_application_environments (organization_id, application_id, environment_id, readiness_reason, setup_wanted)
VALUES (@organization_id, @application_id, @environment_id, @readiness_reason, true)
ON CONFLICT (organization_id, application_id, environment_id)
DO UPDATE SET readiness = 'pending', readiness_reason = excluded.readiness_reason, setup_wanted = true, current = true
RETURNING *;

-- name: LockApplicationEnvironment :one
SELECT * FROM cd_application_environments WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: LockApplicationsIn :many
SELECT e.* FROM cd_application_environments e
JOIN cd_applications a ON a.organization_id = e.organization_id AND a.id = e.application_id AND a.archived_at IS NULL
WHERE e.organization_id = @organization_id AND e.environment_id = @environment_id AND e.current AND e.id > @after::bigint
ORDER BY e.id LIMIT @most::integer FOR NO KEY UPDATE OF e;

-- name: AwaitingSetup :many
SELECT * FROM cd_application_environments WHERE organization_id = @organization_id AND environment_id = @environment_id AND setup_wanted
ORDER BY id FOR NO KEY UPDATE;

-- name: SaveApplicationEnvironment :execrows
UPDATE cd_application_environments
SET readiness = @readiness, readiness_reason = @readiness_reason, discovered = @discovered, setup_attempt = @setup_attempt, setup_wanted = @setup_wanted
WHERE organization_id = @organization_id AND id = @id;

-- name: SetApplicationEnvironmentWorkflowRef :exec
UPDATE cd_application_environments SET workflow_ref = @workflow_ref WHERE organization_id = @organization_id AND id = @id;

-- name: ApplicationEnvironmentsByID :many
SELECT * FROM cd_application_environments WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: ApplicationEnvironmentsByApplication :many
SELECT * FROM cd_application_environments WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND current ORDER BY application_id, id;

-- name: DropSetups :exec
-- Those that a new pipeline no longer goes to: kept, but neither listed nor set up.
UPDATE cd_application_environments SET current = false, setup_wanted = false
WHERE organization_id = @organization_id AND application_id = @application_id AND NOT (environment_id = ANY(@kept::bigint[])) AND current;
