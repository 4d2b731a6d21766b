-- +goose Up

-- Source code by its SHA-256: main programs and modules alike. The same bytes are stored once.
CREATE TABLE program (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    source bytea NOT NULL
);

CREATE TABLE execution (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The opaque handle of the run; idempotency keys of activities begin with it.
    ref            text        NOT NULL UNIQUE,
    organization   bigint      NOT NULL CHECK (organization > 0),
    -- The id that the caller chose.
    workflow       text        NOT NULL CHECK (workflow <> ''),
    -- 0 running, 1 parked, 2 completed, 3 failed, 4 cancelled
    state          smallint    NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 4),
    error          text        NOT NULL DEFAULT '',
    program        bytea       NOT NULL REFERENCES program,
    -- Module name → hexadecimal digest of its source.
    modules        json        NOT NULL,
    modules_digest bytea       NOT NULL,
    -- The inputs as they were given: the order of members is part of how the program runs.
    inputs         json        NOT NULL,
    inputs_digest  bytea       NOT NULL,
    -- References by name, never values.
    secrets        json        NOT NULL,
    secrets_digest bytea       NOT NULL,
    labels         json        NOT NULL,
    -- The last entry of the history; the number of turns committed; the number of things that arrived.
    last_seq       bigint      NOT NULL DEFAULT 0,
    turn           bigint      NOT NULL DEFAULT 0,
    wakes          bigint      NOT NULL DEFAULT 0,
    -- The lease under which it is in some process's memory; null when it is in none.
    owner          text,
    owner_epoch    bigint,
    -- Only events with a higher number can satisfy its waits.
    start_event    bigint      NOT NULL,
    created_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    CONSTRAINT execution_once UNIQUE (organization, workflow),
    CONSTRAINT execution_owner_has_epoch CHECK ((owner IS NULL) = (owner_epoch IS NULL)),
    CONSTRAINT execution_ended CHECK ((state >= 2) = (ended_at IS NOT NULL))
);
CREATE INDEX execution_running ON execution (id) WHERE state = 0;

-- The history. Its primary key is the fence: of two owners that append the same number, one fails.
CREATE TABLE entry (
    execution   bigint      NOT NULL REFERENCES execution,
    seq         bigint      NOT NULL CHECK (seq > 0),
    branch      integer     NOT NULL,
    op          integer     NOT NULL,
    kind        text        NOT NULL,
    name        text        NOT NULL,
    -- Fingerprint of kind, name and arguments, which a replay must reproduce.
    hash        bigint      NOT NULL,
    value       json,
    error       json,
    -- The event that a wait consumed.
    event       bigint,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (execution, seq)
);
CREATE UNIQUE INDEX entry_event_once ON entry (execution, event) WHERE event IS NOT NULL;

-- The end of a sleep, and of the time that a wait or a run has.
CREATE TABLE timer (
    execution bigint      NOT NULL REFERENCES execution,
    branch    integer     NOT NULL,
    op        integer     NOT NULL,
    due       timestamptz NOT NULL,
    fired     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (execution, branch, op)
);
CREATE INDEX timer_due ON timer (due) WHERE NOT fired;

-- What has arrived for an open operation and is not part of the history yet. The first one wins.
CREATE TABLE delivery (
    execution bigint   NOT NULL REFERENCES execution,
    branch    integer  NOT NULL,
    op        integer  NOT NULL,
    arrived   bigint   GENERATED ALWAYS AS IDENTITY,
    -- 0 event, 1 answer
    kind      smallint NOT NULL CHECK (kind IN (0, 1)),
    value     json,
    error     json,
    event     bigint,
    PRIMARY KEY (execution, branch, op),
    CONSTRAINT delivery_event CHECK ((kind = 0) = (event IS NOT NULL)),
    CONSTRAINT delivery_event_once UNIQUE (execution, event)
);

-- Functions under way, here (location 0) or at a relay (1).
CREATE TABLE call (
    -- The activity's id: the idempotency key.
    id        text        NOT NULL UNIQUE,
    execution bigint      NOT NULL REFERENCES execution,
    branch    integer     NOT NULL,
    op        integer     NOT NULL,
    function  text        NOT NULL,
    args      json        NOT NULL,
    location  smallint    NOT NULL CHECK (location IN (0, 1)),
    agent     bigint      NOT NULL DEFAULT 0,
    no_retry  boolean     NOT NULL,
    attempt   integer     NOT NULL DEFAULT 0,
    -- When to send it (again); null when it is not to be sent.
    next_at   timestamptz,
    deadline  timestamptz NOT NULL,
    PRIMARY KEY (execution, branch, op)
);
CREATE INDEX call_next ON call (next_at) WHERE next_at IS NOT NULL;

-- One row for each process that drives executions.
CREATE TABLE lease (
    instance text        PRIMARY KEY,
    epoch    bigint      NOT NULL,
    until    timestamptz NOT NULL
);

-- +goose Down
DROP TABLE lease, call, delivery, timer, entry, execution, program;
