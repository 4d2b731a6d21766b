-- +goose Up

CREATE TABLE event (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization bigint      NOT NULL CHECK (organization > 0),
    source       text        NOT NULL,
    event_id     text        NOT NULL,
    type         text        NOT NULL,
    data         json        NOT NULL,
    occurred_at  timestamptz NOT NULL,
    received_at  timestamptz NOT NULL,
    -- Whether it was compared with the waits after it had been committed.
    looked       boolean     NOT NULL DEFAULT false,
    CONSTRAINT event_once UNIQUE (organization, source, event_id)
);
CREATE INDEX event_of_type ON event (organization, type, id);
CREATE INDEX event_received ON event (received_at);
CREATE INDEX event_not_looked ON event (received_at) WHERE NOT looked;

-- The sets of filter paths in use for a type. Every event of the type has a key for each of them, and so is found by
-- an index instead of by comparing it with every parked execution.
CREATE TABLE shape (
    id           bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization bigint  NOT NULL,
    type         text    NOT NULL,
    paths        text[]  NOT NULL,
    -- Whether the events that were there before the shape have their keys.
    filled       boolean NOT NULL DEFAULT false,
    CONSTRAINT shape_once UNIQUE (organization, type, paths)
);

-- Hash of organization, type, paths and the values at them.
CREATE TABLE event_key (
    key   bytea  NOT NULL CHECK (octet_length(key) = 16),
    event bigint NOT NULL REFERENCES event ON DELETE CASCADE,
    PRIMARY KEY (key, event)
);
CREATE INDEX event_key_of_event ON event_key (event);

-- One row for each type that an open wait_for_event waits for.
CREATE TABLE wait (
    execution  bigint      NOT NULL REFERENCES execution,
    branch     integer     NOT NULL,
    op         integer     NOT NULL,
    key        bytea       NOT NULL CHECK (octet_length(key) = 16),
    shape      bigint      NOT NULL REFERENCES shape,
    type       text        NOT NULL,
    filter     json        NOT NULL,
    created_at timestamptz NOT NULL,
    -- Whether it was compared with the events after it had been committed.
    looked     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (execution, branch, op, key)
);
CREATE INDEX wait_key ON wait (key);
CREATE INDEX wait_not_looked ON wait (created_at) WHERE NOT looked;

-- +goose Down
DROP TABLE wait, event_key, shape, event;
