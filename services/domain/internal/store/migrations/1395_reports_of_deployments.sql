-- Which phases of what a deployment is outside of Lockstep were reported (R2-30): each wakes its program once. Tokens and accounts may
-- have the permission for that: the bit 512.

-- +goose Up
ALTER TABLE cd_deployment_links ADD COLUMN reported text[] NOT NULL DEFAULT '{}'
    CONSTRAINT cd_deployment_links_reported_is_known CHECK (reported <@ ARRAY['Pending', 'Running', 'Succeeded', 'Failed', 'Error']);
COMMENT ON COLUMN cd_deployment_links.reported IS 'The phases that were reported over HTTP under this name: a repeated report is a no-op.';

ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 1023);
ALTER TABLE cd_chat_accounts
    DROP CONSTRAINT cd_chat_accounts_permissions_are_known,
    ADD CONSTRAINT cd_chat_accounts_permissions_are_known CHECK (permissions BETWEEN 1 AND 1023);
ALTER TABLE cd_forge_codes
    DROP CONSTRAINT cd_forge_codes_permissions_are_known,
    ADD CONSTRAINT cd_forge_codes_permissions_are_known CHECK (permissions BETWEEN 1 AND 1023);

-- +goose Down
-- Tokens and codes of nothing else are good for nothing any more; those that are read keep the other permissions.
ALTER TABLE cd_access_tokens DISABLE TRIGGER cd_access_tokens_grant_is_immutable;
UPDATE cd_access_tokens SET scopes = greatest(scopes & 511, 1) WHERE scopes > 511;
ALTER TABLE cd_access_tokens ENABLE TRIGGER cd_access_tokens_grant_is_immutable;
UPDATE cd_chat_accounts SET permissions = greatest(permissions & 511, 1) WHERE permissions > 511;
UPDATE cd_forge_codes SET permissions = greatest(permissions & 511, 1) WHERE permissions > 511;
ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 511);
ALTER TABLE cd_chat_accounts
    DROP CONSTRAINT cd_chat_accounts_permissions_are_known,
    ADD CONSTRAINT cd_chat_accounts_permissions_are_known CHECK (permissions BETWEEN 1 AND 511);
ALTER TABLE cd_forge_codes
    DROP CONSTRAINT cd_forge_codes_permissions_are_known,
    ADD CONSTRAINT cd_forge_codes_permissions_are_known CHECK (permissions BETWEEN 1 AND 511);
ALTER TABLE cd_deployment_links DROP COLUMN reported;
