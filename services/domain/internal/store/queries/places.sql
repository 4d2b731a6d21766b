-- name: InsertRolloutPlaces :exec
INSERT INTO cd_rollout_places (organization_id, rollout_id, environment_id, places, weights)
VALUES (@organization_id, @rollout_id, @environment_id, @places, @weights);

-- name: RolloutPlaces :one
SELECT places, weights FROM cd_rollout_places
WHERE organization_id = @organization_id AND rollout_id = @rollout_id AND environment_id = @environment_id;

-- name: SetDirectChanges :exec
INSERT INTO cd_environment_protections (organization_id, environment_id, direct_changes) VALUES (@organization_id, @environment_id, @direct_changes)
ON CONFLICT (organization_id, environment_id) DO UPDATE SET direct_changes = excluded.direct_changes;

-- name: DirectChanges :many
SELECT environment_id FROM cd_environment_protections
WHERE organization_id = @organization_id AND environment_id = ANY(@ids::bigint[]) AND direct_changes;

-- name: PlacesSequence :one
-- The server's clock, in microseconds: it rises also where the database was restored.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS sequence;

-- name: EnvironmentsAfter :many
-- Across organizations, on purpose: there is one worker for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id FROM cd_environments_after(@behind::bigint, @most::integer) AS f;
