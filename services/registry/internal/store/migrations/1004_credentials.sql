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
    revoked         boolean     NOT NULL,
    -- The pull that had it last: what a whole pull does not have is gone.
    pulled_at       timestamptz NOT NULL
);
COMMENT ON COLUMN credential.proof IS 'How the client proves itself other than by sending the value. It has no secret.';

-- +goose Down
DROP TABLE credential;
