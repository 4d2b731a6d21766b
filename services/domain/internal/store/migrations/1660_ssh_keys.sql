-- A credential for Git may be a private key of SSH (D56).

-- +goose Up
ALTER TABLE cd_credentials
    DROP CONSTRAINT cd_credentials_proof_is_an_object,
    ADD CONSTRAINT cd_credentials_proof_is_an_object CHECK (jsonb_typeof(proof) = 'object' AND (proof = '{}'
        OR kind = 'http' AND NOT proof ?| '{github_app,ssh_key}' OR kind = 'git' AND (proof ? 'github_app') <> (proof ? 'ssh_key')));
COMMENT ON COLUMN cd_credentials.proof IS 'How the client proves itself other than by sending the value: oauth2 with where tokens are issued, certificate with the authorities of servers, github_app with its numbers, or ssh_key with the servers that are known. It has no secret.';

-- +goose Down
-- Their keys are of no use without what is dropped, and must not be sent as passwords.
ALTER TABLE cd_credentials NO FORCE ROW LEVEL SECURITY;
UPDATE cd_credentials SET proof = '{}', reference = '', sealed = NULL, key_id = 0, revoked_at = coalesce(revoked_at, now()) WHERE proof ? 'ssh_key';
ALTER TABLE cd_credentials FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_credentials
    DROP CONSTRAINT cd_credentials_proof_is_an_object,
    ADD CONSTRAINT cd_credentials_proof_is_an_object CHECK (jsonb_typeof(proof) = 'object' AND (proof = '{}'
        OR kind = 'http' AND NOT proof ? 'github_app' OR kind = 'git' AND proof ? 'github_app'));
COMMENT ON COLUMN cd_credentials.proof IS 'How the client proves itself other than by sending the value: oauth2 with where tokens are issued, certificate with the authorities of servers, or github_app with its numbers. It has no secret.';
