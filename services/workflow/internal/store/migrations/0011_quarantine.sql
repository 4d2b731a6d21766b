-- +goose Up

-- How often a process has died with the execution in hand since it last recorded something or parked. What dies again and again is
-- set aside: state 5, quarantined.
ALTER TABLE execution ADD COLUMN crashes smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0);
DROP INDEX execution_troubled;
ALTER TABLE execution DROP COLUMN troubled;
ALTER TABLE execution ADD COLUMN troubled boolean NOT NULL GENERATED ALWAYS AS (state IN (3, 4, 5, 6)) STORED;
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE troubled;

-- +goose Down
DROP INDEX execution_troubled;
ALTER TABLE execution DROP COLUMN troubled;
ALTER TABLE execution ADD COLUMN troubled boolean NOT NULL GENERATED ALWAYS AS (state IN (3, 4, 6)) STORED;
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE troubled;
UPDATE execution SET state = 3 WHERE state = 5;
ALTER TABLE execution DROP COLUMN crashes;
