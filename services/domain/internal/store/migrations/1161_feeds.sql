-- What can be read without signing in (D64): feeds, each with a token of its own, and badges of applications.

-- +goose Up
CREATE TABLE cd_feeds (
    organization_id bigint NOT NULL CONSTRAINT cd_feeds_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    name            text NOT NULL CONSTRAINT cd_feeds_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    kind            text NOT NULL CONSTRAINT cd_feeds_kind_is_known CHECK (kind IN ('production_changes', 'freezes')),
    digest          bytea NOT NULL CONSTRAINT cd_feeds_digest_is_sha256 CHECK (octet_length(digest) = 32),
    principal_type  text NOT NULL CONSTRAINT cd_feeds_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    last_read_at    timestamptz,
    revoked_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_feeds_digest_is_unique UNIQUE (organization_id, digest)
);
CREATE UNIQUE INDEX cd_feeds_name_is_unique ON cd_feeds (organization_id, name) WHERE revoked_at IS NULL;
COMMENT ON TABLE cd_feeds IS 'Feeds that are read by their address, without signing in. None exists before a member makes it. Rows are kept; revoked_at ends one.';
COMMENT ON COLUMN cd_feeds.digest IS 'SHA-256 of the token in the address, which is 256 random bits: it is shown once and kept nowhere.';
COMMENT ON COLUMN cd_feeds.last_read_at IS 'When it was read of late, to the day; null for never.';
CREATE TRIGGER cd_feeds_token_is_immutable BEFORE UPDATE ON cd_feeds FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('organization_id', 'id', 'name', 'kind', 'digest', 'created_at');
CREATE TRIGGER cd_feeds_touch BEFORE UPDATE ON cd_feeds FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_badges (
    organization_id bigint NOT NULL CONSTRAINT cd_badges_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    application_id  bigint NOT NULL,
    enabled         boolean NOT NULL,
    principal_type  text NOT NULL CONSTRAINT cd_badges_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, application_id),
    CONSTRAINT cd_badges_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id)
);
COMMENT ON TABLE cd_badges IS 'Applications whose state anybody may read as a badge; none is without a row. Rows end with the application.';
CREATE TRIGGER cd_badges_touch BEFORE UPDATE ON cd_badges FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_badges;
DROP TABLE cd_feeds;
