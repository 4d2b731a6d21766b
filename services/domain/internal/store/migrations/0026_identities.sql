-- Who a member is at the identity provider where it signs in (OpenID Connect: issuer and subject).

-- +goose Up
ALTER TABLE cd_members
    ADD COLUMN issuer text,
    ADD COLUMN subject text,
    ADD CONSTRAINT cd_members_identity_is_whole CHECK ((issuer IS NULL) = (subject IS NULL) AND issuer <> '' AND subject <> '');
COMMENT ON COLUMN cd_members.subject IS 'The identifier that the issuer gives out once; names and addresses there may change hands. NULL for who signs in by tokens alone.';
CREATE UNIQUE INDEX cd_members_identity_is_unique ON cd_members (organization_id, issuer, subject) WHERE removed_at IS NULL;

-- +goose Down
DROP INDEX cd_members_identity_is_unique;
ALTER TABLE cd_members DROP CONSTRAINT cd_members_identity_is_whole, DROP COLUMN subject, DROP COLUMN issuer;
