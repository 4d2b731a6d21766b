-- name: RetentionRules :many
SELECT kind, keep_days FROM cd_retention_rules WHERE organization_id = @organization_id;

-- name: SaveRetentionRule :exec
INSERT INTO cd_retention_rules (organization_id, kind, keep_days) VALUES (@organization_id, @kind, @keep_days)
ON CONFLICT (organization_id, kind) DO UPDATE SET keep_days = excluded.keep_days;

-- name: LegalHold :one
SELECT in_force, reason FROM cd_legal_holds WHERE organization_id = @organization_id;

-- name: SaveLegalHold :exec
INSERT INTO cd_legal_holds (organization_id, in_force, reason) VALUES (@organization_id, @in_force, @reason)
ON CONFLICT (organization_id) DO UPDATE SET in_force = excluded.in_force, reason = excluded.reason;

-- name: CountSettled :one
SELECT count(*)::bigint FROM cd_settled(@kind::text, cd_settled_before(@kind::text), @at_most::integer);

-- name: DeleteSettled :one
SELECT cd_delete_settled(@kind::text, @at_most::integer)::bigint;

-- name: SettledRows :many
SELECT r.id::bigint AS id, r.content::text AS content FROM cd_settled_rows(@kind::text, @at_most::integer, @most_bytes::bigint) r;

-- name: DeleteSettledRows :one
SELECT cd_delete_settled_rows(@kind::text, @ids::bigint[], @name::text, @digest::bytea)::bigint;

-- name: ArchivedObjects :many
SELECT name, digest, row_count, kept, created_at FROM cd_archived_objects
WHERE organization_id = @organization_id AND kind = @kind AND name > @after::text ORDER BY name LIMIT @at_most;

-- name: InstallationID :one
SELECT id FROM installation;
