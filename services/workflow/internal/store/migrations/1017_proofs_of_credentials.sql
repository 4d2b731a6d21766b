-- A credential of an organization may be a client of OAuth 2.0 or a certificate (R3-41).

-- +goose Up
ALTER TABLE credential ADD COLUMN proof jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN credential.proof IS 'How the client proves itself other than by sending the value. It has no secret.';

-- +goose Down
ALTER TABLE credential DROP COLUMN proof;
