-- A token may be bound to the keys of checks that it reports (D48).

-- +goose Up
ALTER TABLE cd_access_tokens
    ADD COLUMN check_keys text[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT cd_access_tokens_check_keys_are_bounded CHECK (cardinality(check_keys) <= 20);
COMMENT ON COLUMN cd_access_tokens.check_keys IS 'The keys of checks that it may report; empty for all. A browser session has those of its token.';
DROP TRIGGER cd_access_tokens_grant_is_immutable ON cd_access_tokens;
CREATE TRIGGER cd_access_tokens_grant_is_immutable BEFORE UPDATE ON cd_access_tokens FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'member_id', 'parent_id', 'digest', 'scopes', 'expires_at', 'created_at', 'check_keys');

-- +goose Down
DROP TRIGGER cd_access_tokens_grant_is_immutable ON cd_access_tokens;
CREATE TRIGGER cd_access_tokens_grant_is_immutable BEFORE UPDATE ON cd_access_tokens FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('id', 'organization_id', 'member_id', 'parent_id', 'digest', 'scopes', 'expires_at', 'created_at');
-- What was bound to keys would otherwise report all.
UPDATE cd_access_tokens SET revoked_at = now() WHERE check_keys <> '{}' AND revoked_at IS NULL;
ALTER TABLE cd_access_tokens DROP COLUMN check_keys;
