-- When a rollout was cancelled: for an hour the program of its drivers for that takes back what it has begun, by the passages that it had (D53).

-- +goose Up
ALTER TABLE guarded_run
    ADD COLUMN cancelled_at timestamptz,
    ADD COLUMN kept boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT guarded_run_cancelled_is_over CHECK (cancelled_at IS NULL OR revoked);
COMMENT ON COLUMN guarded_run.cancelled_at IS 'When the rollout was cancelled; null if it was not.';
COMMENT ON COLUMN guarded_run.kept IS 'Whether its passages are kept although it is over.';
CREATE INDEX guarded_run_kept ON guarded_run (organization, cancelled_at) WHERE kept;

-- +goose Down
DROP INDEX guarded_run_kept;
ALTER TABLE guarded_run DROP CONSTRAINT guarded_run_cancelled_is_over, DROP COLUMN kept, DROP COLUMN cancelled_at;
