-- +goose Up

-- How far a run that has gone on in further generations has had all events of a key: what comes next for a wait of it is behind that. Without
-- it a run that waits for the same for ever would have every event look through all that it has had.
CREATE TABLE had (
    execution bigint NOT NULL,
    key       bytea  NOT NULL CHECK (octet_length(key) = 16),
    event     bigint NOT NULL,
    PRIMARY KEY (execution, key)
);

-- +goose Down
DROP TABLE had;
