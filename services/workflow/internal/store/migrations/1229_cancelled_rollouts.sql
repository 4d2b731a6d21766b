-- When a rollout was cancelled: for an hour the program of its drivers for that takes back what it has begun, by the passages that it had (D53).

-- +goose Up
ALTER TABLE guarded_run
    ADD COLUMN cancelled_at timestamptz,
    ADD COLUMN kept boolean NOT NULL DEFAULT false,
    ADD COLUMN left_environments bigint[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT guarded_run_cancelled_is_over CHECK (cancelled_at IS NULL OR revoked);
COMMENT ON COLUMN guarded_run.cancelled_at IS 'When the rollout was cancelled; null if it was not.';
COMMENT ON COLUMN guarded_run.kept IS 'Whether its passages are kept although it is over.';
COMMENT ON COLUMN guarded_run.left_environments IS
    'The environments that a cancelled rollout has entered and not completed: only their passages are kept.';
CREATE INDEX guarded_run_kept ON guarded_run (cancelled_at, organization) WHERE kept;
ALTER TABLE passage ADD COLUMN application bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN passage.application IS 'The application of the rollout; 0 for grants of earlier releases.';
CREATE TABLE environment_entrance (
    organization bigint      NOT NULL CHECK (organization > 0),
    environment  bigint      NOT NULL CHECK (environment > 0),
    application  bigint      NOT NULL,
    workflow     text        NOT NULL,
    granted_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, environment, application)
);
COMMENT ON TABLE environment_entrance IS
    'The run of the rollout of an application that was the last one to be let into an environment: what was cancelled before takes back nothing there.';
COMMENT ON COLUMN environment_entrance.application IS 'The application; 0 for grants of earlier releases.';

-- +goose Down
DROP TABLE environment_entrance;
ALTER TABLE passage DROP COLUMN application;
DROP INDEX guarded_run_kept;
ALTER TABLE guarded_run DROP CONSTRAINT guarded_run_cancelled_is_over, DROP COLUMN left_environments, DROP COLUMN kept, DROP COLUMN cancelled_at;
