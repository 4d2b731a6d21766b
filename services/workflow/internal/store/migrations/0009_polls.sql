-- +goose Up

-- How far open polls have come. The row is replaced with every change; when the poll is over, the last observation goes
-- into the history.
CREATE TABLE poll (
    execution bigint      NOT NULL REFERENCES execution,
    branch    integer     NOT NULL,
    op        integer     NOT NULL,
    function  text        NOT NULL,
    -- The call under way, or in a pause the next one.
    round     integer     NOT NULL CHECK (round > 0),
    calling   boolean     NOT NULL,
    deadline  timestamptz NOT NULL,
    value     json,
    error     json,
    PRIMARY KEY (execution, branch, op)
);

-- How retryable errors are tried again, where the program says so, and how often that was.
ALTER TABLE call ADD COLUMN retry json;
ALTER TABLE call ADD COLUMN refused integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE call DROP COLUMN refused;
ALTER TABLE call DROP COLUMN retry;
DROP TABLE poll;
