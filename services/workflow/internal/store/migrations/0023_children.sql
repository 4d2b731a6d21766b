-- +goose Up

-- The runs that programs have started. A row is written with the run, and ends with its row.
CREATE TABLE child (
    organization bigint      NOT NULL CHECK (organization > 0),
    workflow     text        NOT NULL,
    -- The run that has started it, and the one that all of its line descends from, which decides what it may change.
    parent       bigint      NOT NULL,
    root         text        NOT NULL,
    -- Whether it continues when its parent ends.
    detached     boolean     NOT NULL,
    -- Its parent has ended, and it is to be cancelled.
    orphaned     boolean     NOT NULL DEFAULT false,
    started_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, workflow),
    CONSTRAINT child_orphaned CHECK (NOT (detached AND orphaned))
);
CREATE INDEX child_of_parent ON child (organization, parent) WHERE NOT detached AND NOT orphaned;
CREATE INDEX child_to_cancel ON child (organization, workflow) WHERE orphaned;

-- +goose Down
DROP TABLE child;
