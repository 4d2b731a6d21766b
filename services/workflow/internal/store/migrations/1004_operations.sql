-- What executions have under way: calls, timers, polls and watches.

-- +goose Up
-- What has arrived for an open operation and is not part of the history yet. The first one wins.
CREATE TABLE delivery (
    execution bigint NOT NULL,
    branch    integer NOT NULL,
    op        integer NOT NULL,
    arrived   bigint GENERATED ALWAYS AS IDENTITY,
    -- 0 event, 1 answer
    kind      smallint NOT NULL CHECK (kind IN (0, 1)),
    value     json,
    error     json,
    event     bigint,
    PRIMARY KEY (execution, branch, op),
    CONSTRAINT delivery_event_once UNIQUE (execution, event),
    CONSTRAINT delivery_event CHECK ((kind = 0) = (event IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The end of a sleep, and of the time that a wait or a run has.
CREATE TABLE timer (
    execution bigint NOT NULL,
    branch    integer NOT NULL,
    op        integer NOT NULL,
    due       timestamptz NOT NULL,
    fired     boolean NOT NULL DEFAULT false,
    -- Since when an operation is open.
    opened_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (execution, branch, op)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX timer_due ON timer (due) WHERE NOT fired;

CREATE TABLE call (
    -- The activity's id: the idempotency key.
    id           text NOT NULL UNIQUE,
    execution    bigint NOT NULL,
    branch       integer NOT NULL,
    op           integer NOT NULL,
    function     text NOT NULL,
    args         json NOT NULL,
    location     smallint NOT NULL CHECK (location IN (0, 1, 2, 3)),
    agent        bigint NOT NULL DEFAULT 0,
    no_retry     boolean NOT NULL,
    attempt      integer NOT NULL DEFAULT 0,
    -- When to send it (again); null when it is not to be sent.
    next_at      timestamptz,
    deadline     timestamptz NOT NULL,
    -- How retryable errors are tried again, where the program says so, and how often that was.
    retry        json,
    refused      integer NOT NULL DEFAULT 0,
    -- Whose call it is; 0 unless a worker carries it out.
    organization bigint NOT NULL DEFAULT 0,
    -- From when a worker may take it: when it was opened, when its holder is given up, or after the pause before the next attempt. NULL when it
    -- is answered, and for calls that no worker carries out.
    offer_at     timestamptz,
    -- The session of the worker that has it; empty for none. Only that one may answer.
    holder       text NOT NULL DEFAULT '',
    PRIMARY KEY (execution, branch, op)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE call IS 'A call that a relay or a worker carries out. Deleted with the turn that takes its answer, and with the end of its run.';
CREATE INDEX call_next ON call (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX call_offer ON call (organization, function, offer_at) WHERE offer_at IS NOT NULL;

-- How far open polls have come. The row is replaced with every change; when the poll is over, the last observation goes
-- into the history.
CREATE TABLE poll (
    execution bigint NOT NULL REFERENCES execution (id),
    branch    integer NOT NULL,
    op        integer NOT NULL,
    function  text NOT NULL,
    -- The call under way, or in a pause the next one.
    round     integer NOT NULL CHECK (round > 0),
    calling   boolean NOT NULL,
    deadline  timestamptz NOT NULL,
    value     json,
    error     json,
    PRIMARY KEY (execution, branch, op)
);

CREATE TABLE worker_function (
    organization  bigint NOT NULL CHECK (organization > 0),
    name          text NOT NULL CHECK (length(name) >= 3 AND length(name) <= 200),
    declaration   jsonb NOT NULL CHECK (jsonb_typeof(declaration) = 'object'),
    registered_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    PRIMARY KEY (organization, name)
);
COMMENT ON TABLE worker_function IS 'A Function that workers have registered. Deleted 30 days after its last worker was seen.';

-- +goose Down
DROP TABLE worker_function;
DROP TABLE poll;
DROP TABLE call;
DROP TABLE timer;
DROP TABLE delivery;
