-- Where applications are reached in environments, which forges show with deployments (D64).

-- +goose Up
ALTER TABLE cd_forge_mirrors ADD COLUMN addresses jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT cd_forge_mirrors_addresses_are_an_object CHECK (jsonb_typeof(addresses) = 'object')
    CONSTRAINT cd_forge_mirrors_addresses_are_bounded CHECK (length(addresses::text) <= 65536);
COMMENT ON COLUMN cd_forge_mirrors.addresses IS 'URLs by the numbers of environments.';

-- +goose Down
ALTER TABLE cd_forge_mirrors DROP COLUMN addresses;
