-- +goose Up

-- The executions whose state is 0. An index that looks at a state has every turn that changes it write a row anew into all
-- indexes of the table; a table of its own costs one short row when an execution starts to run, and its deletion.
CREATE TABLE runnable (
    execution bigint PRIMARY KEY
);
INSERT INTO runnable SELECT id FROM execution WHERE state = 0;
DROP INDEX execution_running;

-- For the same reason the index of those that ended badly looks at a column that stays as it is for all others.
DROP INDEX execution_troubled;
ALTER TABLE execution ADD COLUMN troubled boolean NOT NULL GENERATED ALWAYS AS (state IN (3, 4, 6)) STORED;
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE troubled;

-- What a start is compared with is computed from what is stored, when a second one comes under its id: few do.
ALTER TABLE execution DROP COLUMN modules_digest, DROP COLUMN inputs_digest, DROP COLUMN secrets_digest;

-- +goose Down
ALTER TABLE execution ADD COLUMN modules_digest bytea NOT NULL DEFAULT '', ADD COLUMN inputs_digest bytea NOT NULL DEFAULT '', ADD COLUMN secrets_digest bytea NOT NULL DEFAULT '';
DROP INDEX execution_troubled;
ALTER TABLE execution DROP COLUMN troubled;
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE state IN (3, 4, 6);
CREATE INDEX execution_running ON execution (id) WHERE state = 0;
DROP TABLE runnable;
