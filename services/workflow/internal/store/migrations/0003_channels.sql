-- +goose Up

-- The addresses that running programs have given out. Messages to them are events (history.TypeMessage).
CREATE TABLE channel (
    token        text   PRIMARY KEY,
    execution    bigint NOT NULL REFERENCES execution,
    organization bigint NOT NULL
);
CREATE INDEX channel_of_execution ON channel (execution);

-- +goose Down
DROP TABLE channel;
