-- +goose Up

-- What runs report of themselves (set_status). Rows end with their run's row.
CREATE TABLE status (
    organization bigint      NOT NULL CHECK (organization > 0),
    execution    bigint      NOT NULL,
    key          text        NOT NULL CHECK (key <> ''),
    -- A string, a number or a bool.
    value        jsonb       NOT NULL,
    set_at       timestamptz NOT NULL,
    PRIMARY KEY (organization, execution, key)
);

-- +goose Down
DROP TABLE status;
