-- +goose Up

-- Operations on many runs. A row is kept for 30 days after its end.
CREATE TABLE batch (
    organization bigint      NOT NULL CHECK (organization > 0),
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    action       text        NOT NULL CHECK (action IN ('cancel', 'terminate', 'retry')),
    state        text        NOT NULL CHECK (state IN ('running', 'done', 'stopped')),
    -- Which runs: conditions, or ids.
    filter       json        NOT NULL,
    reason       text        NOT NULL,
    started_by   text        NOT NULL,
    -- How many runs a second.
    rate         integer     NOT NULL CHECK (rate > 0),
    -- Runs with smaller numbers, or ids from this place on, are still to be done.
    position     bigint      NOT NULL,
    done         bigint      NOT NULL DEFAULT 0,
    refused      bigint      NOT NULL DEFAULT 0,
    last_refusal text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    -- When the next runs are taken; NULL once it has ended.
    next_at      timestamptz,
    PRIMARY KEY (organization, id),
    CONSTRAINT batch_ended CHECK ((state = 'running') = (ended_at IS NULL) AND (state = 'running') = (next_at IS NOT NULL))
);
CREATE INDEX batch_next ON batch (next_at) WHERE next_at IS NOT NULL;

-- +goose Down
DROP TABLE batch;
