-- Credentials of organizations for registries, sealed or by reference (D56).

-- +goose Up
-- The domain service's, so that sources are polled with them also while that service is unreachable.
CREATE TABLE credential (
    id              bigint      PRIMARY KEY,
    organization_id bigint      NOT NULL,
    name            text        NOT NULL,
    version         integer     NOT NULL,
    url_prefixes    text[]      NOT NULL,
    username        text        NOT NULL,
    proof           jsonb       NOT NULL,
    reference       text        NOT NULL,
    sealed          bytea,
    revoked         boolean     NOT NULL
);
COMMENT ON COLUMN credential.proof IS 'How the client proves itself other than by sending the value. It has no secret.';

-- The order of pulls, which no clock decides: one that began earlier does not replace what a later one has stored.
CREATE TABLE credential_pull (
    one       boolean     PRIMARY KEY DEFAULT true CHECK (one),
    begun     bigint      NOT NULL DEFAULT 0,
    stored    bigint      NOT NULL DEFAULT 0,
    pulled_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE credential_pull IS 'How many pulls of credentials have begun, in all replicas, and which of them is stored.';
INSERT INTO credential_pull DEFAULT VALUES;

-- +goose Down
DROP TABLE credential_pull;
DROP TABLE credential;
