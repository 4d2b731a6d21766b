-- Organizations have credentials for registries of images and charts (D56).

-- +goose Up
ALTER TABLE cd_credentials
    DROP CONSTRAINT cd_credentials_kind_is_known,
    ADD CONSTRAINT cd_credentials_kind_is_known CHECK (kind IN ('git', 'http', 'registry')),
    DROP CONSTRAINT cd_credentials_proof_is_an_object,
    ADD CONSTRAINT cd_credentials_proof_is_an_object CHECK (jsonb_typeof(proof) = 'object' AND (proof = '{}' OR CASE kind
        WHEN 'registry' THEN (proof ? 'ecr')::int + (proof ? 'gar')::int + (proof ? 'acr')::int = 1
            AND NOT proof ?| '{oauth2,certificate,github_app,ssh_key}'
        WHEN 'http' THEN NOT proof ?| '{github_app,ssh_key,ecr,gar,acr}'
        ELSE (proof ? 'github_app') <> (proof ? 'ssh_key') AND NOT proof ?| '{ecr,gar,acr}' END));
COMMENT ON COLUMN cd_credentials.proof IS 'How the client proves itself other than by sending the value: oauth2 with where tokens are issued, certificate with the authorities of servers, github_app with its numbers, ssh_key with the servers that are known, or ecr, gar and acr with accounts of clouds. It has no secret.';
CREATE INDEX cd_credentials_of_registries ON cd_credentials (id) WHERE kind = 'registry';

-- +goose StatementBegin
CREATE FUNCTION cd_registry_credentials_after(behind bigint, most integer) RETURNS SETOF cd_credentials
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT c.* FROM cd_credentials c WHERE c.kind = 'registry' AND c.id > behind ORDER BY c.id LIMIT most;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_registry_credentials_after IS 'There is one registry service for all organizations.';

-- +goose Down
DROP FUNCTION cd_registry_credentials_after;
DROP INDEX cd_credentials_of_registries;
-- A release of before knows none: their names stay taken.
ALTER TABLE cd_credentials NO FORCE ROW LEVEL SECURITY;
UPDATE cd_credentials SET kind = 'http', proof = '{}', reference = '', sealed = NULL, key_id = 0, revoked_at = coalesce(revoked_at, now())
WHERE kind = 'registry';
ALTER TABLE cd_credentials FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_credentials
    DROP CONSTRAINT cd_credentials_kind_is_known,
    ADD CONSTRAINT cd_credentials_kind_is_known CHECK (kind IN ('git', 'http')),
    DROP CONSTRAINT cd_credentials_proof_is_an_object,
    ADD CONSTRAINT cd_credentials_proof_is_an_object CHECK (jsonb_typeof(proof) = 'object' AND (proof = '{}'
        OR kind = 'http' AND NOT proof ?| '{github_app,ssh_key}' OR kind = 'git' AND (proof ? 'github_app') <> (proof ? 'ssh_key')));
COMMENT ON COLUMN cd_credentials.proof IS 'How the client proves itself other than by sending the value: oauth2 with where tokens are issued, certificate with the authorities of servers, github_app with its numbers, or ssh_key with the servers that are known. It has no secret.';
