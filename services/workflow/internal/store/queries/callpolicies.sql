-- name: SaveCallPolicy :exec
-- Reports come more than once and in any order: that with the highest version stays. A release that does not know groups has stored their sets
-- without labels.
INSERT INTO call_policy (organization, name, version, mode, time_zone, policies, application, environment, application_labels)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (organization, name) DO UPDATE SET
    version = excluded.version, mode = excluded.mode, time_zone = excluded.time_zone, policies = excluded.policies,
    application = excluded.application, environment = excluded.environment, application_labels = excluded.application_labels
WHERE call_policy.version < excluded.version
    OR call_policy.version = excluded.version AND call_policy.application_labels IS NULL AND excluded.application_labels IS NOT NULL;

-- name: CallPolicyVersions :many
SELECT organization, name, version, (application_labels IS NOT NULL)::boolean AS of_group FROM call_policy;

-- name: CallPolicies :many
SELECT organization, name, version, mode, time_zone, policies, application, environment, application_labels FROM call_policy
WHERE organization = ANY (sqlc.arg(organizations)::bigint[]) ORDER BY organization, name;

-- name: StartedWith :one
SELECT inputs FROM execution WHERE organization = $1 AND workflow = $2;

-- name: OrganizationOf :one
SELECT organization FROM execution WHERE id = $1;
