-- name: PutCredential :batchexec
-- A pull that began earlier does not replace what a later one has stored.
INSERT INTO credential (id, organization_id, name, version, url_prefixes, username, proof, reference, sealed, revoked, pulled_at)
VALUES (@id, @organization_id, @name, @version, @url_prefixes, @username, @proof, @reference, @sealed, @revoked, @pulled_at)
ON CONFLICT (id) DO UPDATE
SET organization_id = excluded.organization_id,
    name            = excluded.name,
    version         = excluded.version,
    url_prefixes    = excluded.url_prefixes,
    username        = excluded.username,
    proof           = excluded.proof,
    reference       = excluded.reference,
    sealed          = excluded.sealed,
    revoked         = excluded.revoked,
    pulled_at       = excluded.pulled_at
WHERE credential.pulled_at <= excluded.pulled_at;

-- name: DropCredentials :exec
DELETE FROM credential WHERE pulled_at < @before::timestamptz;

-- name: Credentials :many
SELECT * FROM credential ORDER BY id;
