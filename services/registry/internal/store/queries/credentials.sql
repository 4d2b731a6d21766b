-- name: BeginPull :one
UPDATE credential_pull SET begun = begun + 1 RETURNING begun;

-- name: StorePull :execrows
-- The replicas wait for each other here. No row is changed if a later pull was stored.
UPDATE credential_pull SET stored = @number, pulled_at = now() WHERE stored < @number;

-- name: PutCredential :batchexec
INSERT INTO credential (id, organization_id, name, version, url_prefixes, username, proof, reference, sealed, revoked)
VALUES (@id, @organization_id, @name, @version, @url_prefixes, @username, @proof, @reference, @sealed, @revoked)
ON CONFLICT (id) DO UPDATE
SET organization_id = excluded.organization_id,
    name            = excluded.name,
    version         = excluded.version,
    url_prefixes    = excluded.url_prefixes,
    username        = excluded.username,
    proof           = excluded.proof,
    reference       = excluded.reference,
    sealed          = excluded.sealed,
    revoked         = excluded.revoked
WHERE (credential.organization_id, credential.name, credential.version, credential.url_prefixes, credential.username, credential.proof,
       credential.reference, credential.sealed, credential.revoked)
    IS DISTINCT FROM (excluded.organization_id, excluded.name, excluded.version, excluded.url_prefixes, excluded.username, excluded.proof,
       excluded.reference, excluded.sealed, excluded.revoked);

-- name: DropCredentials :exec
DELETE FROM credential WHERE NOT id = ANY(@ids::bigint[]);

-- name: Credentials :many
SELECT * FROM credential ORDER BY id;
