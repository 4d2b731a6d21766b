-- Credentials of organizations, sealed.

-- +goose Up
CREATE TABLE cd_credentials (
    organization_id bigint NOT NULL CONSTRAINT cd_credentials_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    name            text NOT NULL,
    kind            text NOT NULL,
    url_prefixes    text[] NOT NULL,
    username        text NOT NULL,
    header          text NOT NULL,
    forge           text NOT NULL,
    version         integer NOT NULL,
    reference       text NOT NULL,
    sealed          bytea,
    key_id          bigint NOT NULL,
    expires_at      timestamptz,
    revoked_at      timestamptz,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_credentials_name_is_unique UNIQUE (organization_id, name),
    CONSTRAINT cd_credentials_key_is_of_a_sealed_value CHECK ((sealed IS NOT NULL) = (key_id <> 0)),
    CONSTRAINT cd_credentials_kind_is_known CHECK (kind IN ('git', 'http')),
    CONSTRAINT cd_credentials_name_is_plain CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
    CONSTRAINT cd_credentials_places_are_bounded CHECK (cardinality(url_prefixes) >= 1 AND cardinality(url_prefixes) <= 20),
    CONSTRAINT cd_credentials_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_credentials_sealed_is_bounded CHECK (octet_length(sealed) <= 98304),
    CONSTRAINT cd_credentials_value_is_one
        CHECK (CASE WHEN revoked_at IS NULL THEN (reference <> '') <> (sealed IS NOT NULL) ELSE reference = '' AND sealed IS NULL END),
    CONSTRAINT cd_credentials_version_counts CHECK (version >= 1)
);
COMMENT ON TABLE cd_credentials IS 'Credentials that programs name. Rows are kept: they are few, and a name that is given again continues its versions.';
COMMENT ON COLUMN cd_credentials.expires_at IS 'When the value ends where it is used, as its author says; null for never. It is used beyond that.';
COMMENT ON COLUMN cd_credentials.key_id IS 'The key of the keyset that the value is sealed with; 0 for none.';
COMMENT ON COLUMN cd_credentials.reference IS 'Refers to the value; empty for a sealed one, and once it was revoked.';
COMMENT ON COLUMN cd_credentials.sealed IS 'The sealed value, with which the columns above it are authenticated; null for a reference, and once it was revoked.';
COMMENT ON COLUMN cd_credentials.url_prefixes IS 'What the value may be sent to: scheme, host and the beginning of a path.';
COMMENT ON COLUMN cd_credentials.version IS 'Counts the values.';
CREATE INDEX cd_credentials_by_expiry ON cd_credentials (expires_at) WHERE revoked_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX cd_credentials_by_id ON cd_credentials (id);
CREATE INDEX cd_credentials_by_key ON cd_credentials (key_id, id) WHERE key_id <> 0;
CREATE TRIGGER cd_credentials_touch BEFORE UPDATE ON cd_credentials FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_credentials_after(behind bigint, most integer) RETURNS TABLE(id bigint, organization_id bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT c.id, c.organization_id FROM cd_credentials c WHERE c.id > behind ORDER BY c.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_credentials_after IS 'There is one worker for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_credentials_expiring(soon interval, OUT expiring bigint, OUT expired bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*) FILTER (WHERE c.expires_at > clock_timestamp()), count(*) FILTER (WHERE c.expires_at <= clock_timestamp()) INTO expiring, expired
    FROM cd_credentials c WHERE c.revoked_at IS NULL AND c.expires_at <= clock_timestamp() + soon;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_credentials_expiring IS 'Metrics are of the installation.';

-- +goose StatementBegin
CREATE FUNCTION cd_credentials_of_other_keys(primary_key bigint, behind bigint, most integer)
    RETURNS TABLE(id bigint, organization_id bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT c.id, c.organization_id FROM cd_credentials c
        WHERE c.key_id <> 0 AND (c.key_id < primary_key OR c.key_id > primary_key) AND c.id > behind ORDER BY c.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_credentials_of_other_keys IS 'There is one worker for all organizations.';

-- +goose Down
DROP FUNCTION cd_credentials_of_other_keys;
DROP FUNCTION cd_credentials_expiring;
DROP FUNCTION cd_credentials_after;
DROP TABLE cd_credentials;
