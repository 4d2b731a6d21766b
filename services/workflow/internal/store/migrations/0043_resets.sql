-- +goose Up

-- A batch may reset runs.
ALTER TABLE batch DROP CONSTRAINT batch_action_check;
ALTER TABLE batch ADD CONSTRAINT batch_action_check CHECK (action IN ('cancel', 'terminate', 'retry', 'reset'));

-- A run that waits was given another program. A row is kept as long as its run.
CREATE TABLE program_change (
    organization bigint      NOT NULL CHECK (organization > 0),
    execution    bigint      NOT NULL REFERENCES execution (id),
    -- The end of the history at that time.
    last_seq     bigint      NOT NULL CHECK (last_seq >= 0),
    -- Counts the changes of a run, from 1.
    number       integer     NOT NULL CHECK (number > 0),
    -- The main file's SHA-256 before.
    replaced     bytea       NOT NULL CHECK (octet_length(replaced) = 32),
    reason       text        NOT NULL,
    changed_by   text        NOT NULL,
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, execution, number)
);

-- +goose Down
DROP TABLE program_change;
DELETE FROM batch WHERE action = 'reset';
ALTER TABLE batch DROP CONSTRAINT batch_action_check;
ALTER TABLE batch ADD CONSTRAINT batch_action_check CHECK (action IN ('cancel', 'terminate', 'retry'));
