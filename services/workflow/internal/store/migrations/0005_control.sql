-- +goose Up

-- 5 is given to no state yet, 6 is terminated.
ALTER TABLE execution DROP CONSTRAINT execution_state_check;
ALTER TABLE execution ADD CONSTRAINT execution_state_check CHECK (state BETWEEN 0 AND 6);

-- Counts the retries, from 1: what is done in the second attempt and after has activity ids of its own.
ALTER TABLE execution ADD COLUMN attempt integer NOT NULL DEFAULT 1 CHECK (attempt > 0);

-- Executions are found by their labels.
ALTER TABLE execution ALTER COLUMN labels TYPE jsonb USING labels::jsonb;
CREATE INDEX execution_labelled ON execution USING gin (labels jsonb_path_ops) WHERE labels <> '{}' AND labels <> 'null';
CREATE INDEX execution_newest ON execution (organization, id DESC);
-- Those that ended badly are few among many, and are what is looked for.
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE state IN (3, 4, 6);

-- Since when an operation is open.
ALTER TABLE timer ADD COLUMN opened_at timestamptz NOT NULL DEFAULT now();

-- What RetryWorkflow did.
CREATE TABLE retry (
    execution  bigint      NOT NULL REFERENCES execution,
    number     integer     NOT NULL CHECK (number > 0),
    from_seq   bigint      NOT NULL CHECK (from_seq > 0),
    error      text        NOT NULL,
    reason     text        NOT NULL,
    retried_at timestamptz NOT NULL,
    PRIMARY KEY (execution, number)
);

-- Events that were consumed by entries which a retry has forgotten. The repeated wait is for another one.
CREATE TABLE spent (
    execution bigint NOT NULL REFERENCES execution,
    event     bigint NOT NULL,
    PRIMARY KEY (execution, event)
);

-- +goose Down
DROP TABLE spent, retry;
ALTER TABLE timer DROP COLUMN opened_at;
DROP INDEX execution_troubled, execution_newest, execution_labelled;
ALTER TABLE execution ALTER COLUMN labels TYPE json USING labels::json;
ALTER TABLE execution DROP COLUMN attempt;
UPDATE execution SET state = 3 WHERE state = 6;
ALTER TABLE execution DROP CONSTRAINT execution_state_check;
ALTER TABLE execution ADD CONSTRAINT execution_state_check CHECK (state BETWEEN 0 AND 4);
