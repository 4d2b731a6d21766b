-- name: EnterOrganization :exec
-- Everything of an organization runs behind this, in one transaction. Every query filters by the organization itself; the
-- setting is what the walls of the tables go by, should one forget to. The other one says which controls this release knows: what it
-- does not know, a release does not decide (migration 0130). Transactions that write make the same settings as they begin.
SELECT set_config('lockstep.organization', @organization, true), set_config('lockstep.controls', @controls, true);

-- name: EnsureOrganization :exec
-- Its name is given once: later renames are kept.
INSERT INTO cd_organizations (id, name) VALUES (@id, @name) ON CONFLICT (id) DO NOTHING;

-- name: NextOrganizationID :one
SELECT nextval(pg_get_serial_sequence('cd_organizations', 'id'))::bigint AS id;

-- name: InsertOrganization :one
INSERT INTO cd_organizations (id, name) VALUES (@id, @name) RETURNING id, name, created_at;

-- name: RenameOrganization :one
UPDATE cd_organizations SET name = @name WHERE id = @id RETURNING id, name, created_at;

-- name: LockOrganization :one
SELECT id, name, created_at FROM cd_organizations WHERE id = @id FOR NO KEY UPDATE;

-- name: ListOrganizations :many
-- Across organizations, on purpose: for the operators of the installation.
SELECT f.id::bigint AS id, f.name::text AS name, f.created_at::timestamptz AS created_at
FROM cd_all_organizations(@above::bigint, @below::bigint, @falling::boolean, @at_most::integer) AS f;

-- name: CountOrganizations :one
SELECT cd_count_organizations()::bigint;

-- name: AdvanceOrganizationIDs :exec
-- Behind the ids that were given by hand. The rows of others cannot be seen here, their sequence can.
SELECT setval(pg_get_serial_sequence('cd_organizations', 'id'), GREATEST(nextval(pg_get_serial_sequence('cd_organizations', 'id')), @id::bigint));

-- name: GetOrganization :one
SELECT id, name, created_at FROM cd_organizations WHERE id = @organization_id;

-- name: OrganizationsWithSources :many
-- Across organizations, on purpose: an artifact belongs to everybody who points at it (R48).
SELECT asked.match_key::text AS match_key, organization_id::bigint AS organization_id
FROM unnest(@match_keys::text[]) AS asked(match_key) CROSS JOIN LATERAL cd_organizations_with_source(asked.match_key) AS organization_id;

-- name: OrganizationsWithDueHandoffs :many
-- Across organizations, on purpose: there is one dispatcher for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_handoffs(@at) AS organization_id;

-- name: Protect :exec
SELECT cd_protect(@service_role::text);

-- name: LockProtection :exec
SELECT pg_advisory_xact_lock(hashtextextended('lockstep/protect/' || current_schema(), 0));

-- name: SourcesAfter :many
-- Across organizations, on purpose: there is one registry service for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id, f.source_ref::text AS source_ref, f.source_config::jsonb AS source_config
FROM cd_sources_after(@behind::bigint, @most::integer) AS f;
