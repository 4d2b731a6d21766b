-- The clusters of environments of many.

-- +goose Up
ALTER TABLE territory ADD COLUMN fleet jsonb CONSTRAINT territory_fleet_check CHECK (jsonb_typeof(fleet) = 'object');
COMMENT ON COLUMN territory.fleet IS 'What belongs to the environment in the clusters of agents belongs to it in those of targets, too; null for an environment without a fleet.';

-- +goose Down
ALTER TABLE territory DROP COLUMN fleet;
