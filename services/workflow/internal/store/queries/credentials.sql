-- name: SaveCredential :exec
-- Reports come more than once and in any order: that with the highest sequence stays. A value that was revoked does not come back,
-- whatever is reported, as after the restore of an earlier record: the next version takes its place.
INSERT INTO credential (organization, name, sequence, version, kind, url_prefixes, username, header, forge, reference, sealed, revoked, proof)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (organization, name) DO UPDATE SET
    sequence = excluded.sequence, version = excluded.version, kind = excluded.kind, url_prefixes = excluded.url_prefixes,
    username = excluded.username, header = excluded.header, forge = excluded.forge, reference = excluded.reference, sealed = excluded.sealed,
    revoked = excluded.revoked, proof = excluded.proof
WHERE credential.sequence < excluded.sequence AND (NOT credential.revoked OR excluded.revoked OR credential.version < excluded.version);

-- name: CredentialNamed :many
SELECT organization, name, version, kind, url_prefixes, username, header, forge, reference, sealed, revoked, proof FROM credential
WHERE organization = $1 AND name = $2;

-- name: CredentialsOfKind :many
-- Without the sealed values, of which an organization may have megabytes: one of them is used.
SELECT organization, name, version, kind, url_prefixes, username, header, forge, reference, NULL::bytea AS sealed, revoked, proof FROM credential
WHERE organization = $1 AND kind = $2 ORDER BY name;
