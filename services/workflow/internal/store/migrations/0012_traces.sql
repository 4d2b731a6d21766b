-- +goose Up

-- The trace in which an execution was asked for, in W3C form, so that what it does is recorded there, whichever process
-- does it and however much later. A table of its own: most installations record no traces, and then it is empty.
CREATE TABLE trace (
    execution bigint PRIMARY KEY REFERENCES execution,
    parent    text   NOT NULL CHECK (parent <> '')
);

-- +goose Down
DROP TABLE trace;
