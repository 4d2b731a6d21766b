-- Pull requests pause a server for themselves (R4-27): what anybody may cause there holds up no status.

-- +goose Up
ALTER TABLE cd_forge_hosts ADD COLUMN pull_failures integer NOT NULL DEFAULT 0, ADD COLUMN pull_paused_until timestamptz NOT NULL DEFAULT 'epoch';
COMMENT ON COLUMN cd_forge_hosts.pull_failures IS 'How many pull requests in succession failed because of the server.';
COMMENT ON COLUMN cd_forge_hosts.pull_paused_until IS 'No pull request is begun there before; statuses are.';

-- +goose Down
ALTER TABLE cd_forge_hosts DROP COLUMN pull_failures, DROP COLUMN pull_paused_until;
