-- A credential may be a client of OAuth 2.0 or a certificate (R3-41).

-- +goose Up
ALTER TABLE cd_credentials ADD COLUMN proof jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT cd_credentials_proof_is_an_object CHECK (jsonb_typeof(proof) = 'object' AND (proof = '{}' OR kind = 'http'));
COMMENT ON COLUMN cd_credentials.proof IS 'How the client proves itself other than by sending the value: oauth2 with where tokens are issued, or certificate with the authorities of servers. It has no secret.';

-- +goose Down
ALTER TABLE cd_credentials DROP COLUMN proof;
