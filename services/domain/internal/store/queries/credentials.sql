-- name: Credentials :many
SELECT * FROM cd_credentials WHERE organization_id = @organization_id ORDER BY name;

-- name: LockCredentials :exec
-- One new credential of an organization at a time.
SELECT pg_advisory_xact_lock(hashtextextended('credentials', @organization_id::bigint));

-- name: LockCredential :one
SELECT * FROM cd_credentials WHERE organization_id = @organization_id AND name = @name FOR NO KEY UPDATE;

-- name: LockCredentialByID :one
SELECT * FROM cd_credentials WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: SaveCredential :one
INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, sealed, key_id, expires_at, revoked_at,
    principal_type, principal_id, principal_name, changed_at, proof)
VALUES (@organization_id, @name, @kind, @url_prefixes, @username, @header, @forge, @version, @reference, @sealed, @key_id, @expires_at, @revoked_at,
    @principal_type, @principal_id, @principal_name, @changed_at, @proof)
ON CONFLICT (organization_id, name) DO UPDATE SET
    kind = excluded.kind, url_prefixes = excluded.url_prefixes, username = excluded.username, header = excluded.header, forge = excluded.forge,
    version = excluded.version, reference = excluded.reference, sealed = excluded.sealed, key_id = excluded.key_id, expires_at = excluded.expires_at,
    revoked_at = excluded.revoked_at, principal_type = excluded.principal_type, principal_id = excluded.principal_id,
    principal_name = excluded.principal_name, changed_at = excluded.changed_at,
    proof = excluded.proof
RETURNING *;

-- name: ResealCredential :exec
UPDATE cd_credentials SET sealed = @sealed, key_id = @key_id WHERE organization_id = @organization_id AND id = @id;

-- name: CredentialsAfter :many
-- Across organizations, on purpose: there is one worker for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id FROM cd_credentials_after(@behind::bigint, @most::integer) AS f;

-- name: CredentialsChanged :many
-- Across organizations, on purpose: there is one worker for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id
FROM cd_credentials_changed(@since::timestamptz, @behind::bigint, @most::integer) AS f;

-- name: CredentialsOfOtherKeys :many
-- Across organizations, on purpose: there is one worker for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id
FROM cd_credentials_of_other_keys(@primary_key::bigint, @behind::bigint, @most::integer) AS f;

-- name: CredentialsExpiring :one
SELECT expiring::bigint AS expiring, expired::bigint AS expired FROM cd_credentials_expiring(make_interval(secs => @soon_seconds::bigint));

-- name: RegistryCredentialsAfter :many
-- Across organizations, on purpose: there is one registry service for all.
SELECT f.id::bigint AS id, f.organization_id::bigint AS organization_id, f.name::text AS name, f.version::integer AS version,
    f.url_prefixes::text[] AS url_prefixes, f.username::text AS username, f.proof::jsonb AS proof, f.reference::text AS reference,
    f.sealed::bytea AS sealed, (f.revoked_at IS NOT NULL)::boolean AS revoked
FROM cd_registry_credentials_after(@behind::bigint, @most::integer) AS f;
