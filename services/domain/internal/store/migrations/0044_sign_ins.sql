-- What a browser's session goes back to: a token that somebody showed, or a sign-in, which is nobody's secret and ends with its session.
-- And where an identity of a provider belongs, for a person in several organizations, and for a provider that ends its sessions.

-- +goose Up
ALTER TABLE cd_access_tokens
    ADD COLUMN sign_in boolean NOT NULL DEFAULT false,
    ADD COLUMN provider_session text CONSTRAINT cd_access_tokens_provider_session_is_of_a_sign_in CHECK (provider_session IS NULL OR provider_session <> '' AND sign_in);
COMMENT ON COLUMN cd_access_tokens.sign_in IS 'Made by a sign-in (at an identity provider, or with the bootstrap token): it cannot be shown, and ends with the session that began with it.';
COMMENT ON COLUMN cd_access_tokens.provider_session IS 'The identity provider''s name of its own session (claim sid), by which it may end this one.';
CREATE INDEX cd_access_tokens_by_provider_session ON cd_access_tokens (provider_session) WHERE provider_session IS NOT NULL;
CREATE INDEX cd_members_by_identity ON cd_members (issuer, subject) WHERE removed_at IS NULL AND issuer IS NOT NULL;
CREATE INDEX cd_members_by_name ON cd_members (name) WHERE removed_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_of_identity(of_issuer text, of_subject text) RETURNS TABLE (id bigint, name text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT o.id, o.name, o.created_at FROM cd_members m JOIN cd_organizations o ON o.id = m.organization_id
    WHERE m.issuer = of_issuer AND m.subject = of_subject AND m.removed_at IS NULL ORDER BY o.id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_of_identity(text, text) IS 'A person may belong to several organizations, and chooses one at sign-in.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_member(of_name text) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT m.organization_id FROM cd_members m WHERE m.name = of_name AND m.removed_at IS NULL AND m.issuer IS NULL ORDER BY m.organization_id;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_member(text) IS 'Where a name that a provider vouches for was added, and has not signed in yet.';

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_provider_session(of_session text) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT DISTINCT t.organization_id FROM cd_access_tokens t WHERE t.provider_session = of_session ORDER BY 1;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cd_organizations_with_provider_session(text);
DROP FUNCTION cd_organizations_with_member(text);
DROP FUNCTION cd_organizations_of_identity(text, text);
DROP INDEX cd_members_by_name;
DROP INDEX cd_members_by_identity;
DROP INDEX cd_access_tokens_by_provider_session;
ALTER TABLE cd_access_tokens DROP CONSTRAINT cd_access_tokens_provider_session_is_of_a_sign_in, DROP COLUMN provider_session, DROP COLUMN sign_in;
