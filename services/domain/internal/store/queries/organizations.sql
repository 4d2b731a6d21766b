-- name: EnterOrganization :exec
-- Everything of an organization runs behind this, in one transaction. Every query filters by the organization itself; the
-- setting tells the database as well.
SELECT set_config('lockstep.organization', (@organization_id::bigint)::text, true);

-- name: EnsureOrganization :exec
INSERT INTO cd_organizations (id, name) VALUES (@id, @name) ON CONFLICT (id) DO UPDATE SET name = excluded.name WHERE cd_organizations.name <> excluded.name;

-- name: AdvanceOrganizationIDs :exec
-- Behind the ids that were given by hand.
SELECT setval(pg_get_serial_sequence('cd_organizations', 'id'), GREATEST((SELECT max(id) FROM cd_organizations), 1));

-- name: GetOrganization :one
SELECT id, name FROM cd_organizations WHERE id = @organization_id;

-- name: OrganizationsWithSource :many
-- Across organizations, on purpose: an artifact belongs to everybody who points at it (R48).
SELECT DISTINCT organization_id FROM cd_artifact_sources WHERE match_key = @match_key ORDER BY organization_id;

-- name: OrganizationsWithDueHandoffs :many
-- Across organizations, on purpose: there is one dispatcher for all.
SELECT organization_id FROM cd_handoffs WHERE state = 0 AND due_at <= @at GROUP BY organization_id ORDER BY min(due_at);
