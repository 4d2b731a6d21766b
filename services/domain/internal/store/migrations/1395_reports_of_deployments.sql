-- Which phases of what a deployment is outside of Lockstep were reported (R2-30): each wakes its program once.

-- +goose Up
ALTER TABLE cd_deployment_links ADD COLUMN reported text[] NOT NULL DEFAULT '{}'
    CONSTRAINT cd_deployment_links_reported_is_known CHECK (reported <@ ARRAY['Pending', 'Running', 'Succeeded', 'Failed', 'Error']);
COMMENT ON COLUMN cd_deployment_links.reported IS 'The phases that were reported over HTTP under this name: a repeated report is a no-op.';

-- +goose Down
ALTER TABLE cd_deployment_links DROP COLUMN reported;
