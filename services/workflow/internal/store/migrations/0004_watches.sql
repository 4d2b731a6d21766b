-- +goose Up

-- What running executions want to be told of by relays (D20). A row counts for as long as its execution has not ended.
CREATE TABLE watch (
    -- The activity that asked for it.
    id         text        PRIMARY KEY,
    execution  bigint      NOT NULL REFERENCES execution ON DELETE CASCADE,
    agent      bigint      NOT NULL CHECK (agent > 0),
    -- Kind, name and fields, as agent.WatchSpec has them.
    spec       json        NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX watch_of_agent ON watch (agent);
CREATE INDEX watch_of_execution ON watch (execution);

-- +goose Down
DROP TABLE watch;
