-- Executions of programs, their histories, and who drives them.

-- +goose Up
CREATE TABLE execution (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The opaque handle of the run; idempotency keys of activities begin with it.
    ref          text NOT NULL UNIQUE,
    organization bigint NOT NULL CHECK (organization > 0),
    -- The id that the caller chose.
    workflow     text NOT NULL CHECK (workflow <> ''),
    state        text NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'parked', 'completed', 'failed', 'cancelled', 'quarantined', 'terminated')),
    error        text NOT NULL DEFAULT '',
    program      bytea NOT NULL,
    -- Module name → hexadecimal digest of its source.
    modules      json NOT NULL,
    -- The inputs as they were given: the order of members is part of how the program runs.
    inputs       json NOT NULL,
    -- References by name, never values.
    secrets      json NOT NULL,
    labels       jsonb NOT NULL,
    -- The last entry of the history; the number of turns committed; the number of things that arrived.
    last_seq     bigint NOT NULL DEFAULT 0,
    turn         bigint NOT NULL DEFAULT 0,
    wakes        bigint NOT NULL DEFAULT 0,
    -- The lease under which it is in some process's memory; null when it is in none.
    owner        text,
    owner_epoch  bigint,
    -- Only events with a higher number can satisfy its waits.
    start_event  bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    -- Counts the retries, from 1: what is done in the second attempt and after has activity ids of its own.
    attempt      integer NOT NULL DEFAULT 1 CHECK (attempt > 0),
    -- How often a process has died with the execution in hand since it last recorded something or parked. What dies again and again is
    -- set aside: quarantined.
    crashes      smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    troubled     boolean NOT NULL GENERATED ALWAYS AS (state IN ('failed', 'cancelled', 'quarantined', 'terminated')) STORED,
    CONSTRAINT execution_once UNIQUE (organization, workflow),
    CONSTRAINT execution_ended CHECK ((state NOT IN ('running', 'parked')) = (ended_at IS NOT NULL)),
    CONSTRAINT execution_owner_has_epoch CHECK ((owner IS NULL) = (owner_epoch IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.02);
-- The newest come first when this is read from its end as well. But new rows are at the end of an index in ascending order, whose
-- pages they fill one after the other; at the beginning of a descending one each full page is cut in half and stays so: twice the
-- size, and a page written to the log for every half of one.
CREATE INDEX execution_by_age ON execution (organization, id);
CREATE INDEX execution_labelled ON execution USING gin (labels jsonb_path_ops) WHERE labels <> '{}'::jsonb AND labels <> 'null'::jsonb;
-- Those that ended badly are few among many, and are what is looked for.
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE troubled;

-- The history. Its primary key is the fence: of two owners that append the same number, one fails.
CREATE TABLE entry (
    execution   bigint NOT NULL,
    seq         bigint NOT NULL CHECK (seq > 0),
    branch      integer NOT NULL,
    op          integer NOT NULL,
    kind        text NOT NULL,
    name        text NOT NULL,
    -- Fingerprint of kind, name and arguments, which a replay must reproduce.
    hash        bigint NOT NULL,
    value       json,
    error       json,
    -- The event that a wait consumed.
    event       bigint,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (execution, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE UNIQUE INDEX entry_event_once ON entry (execution, event) WHERE event IS NOT NULL;

-- The generations of runs behind the first: a run that goes on with an empty history (continue_with). Most runs have none, and cost
-- nothing for it.
CREATE TABLE generation (
    execution  bigint NOT NULL,
    number     integer NOT NULL CHECK (number > 1),
    -- The last entry of the generation before.
    base_seq   bigint NOT NULL CHECK (base_seq > 0),
    -- What it begins with: the value of that entry, which may have been forgotten.
    call       json NOT NULL,
    began_at   timestamptz NOT NULL,
    -- Whether the entries of the generation before have been forgotten.
    forgotten  boolean NOT NULL DEFAULT false,
    -- Until when a generation is held back that has begun too soon after others (core/engine/pace.go); null: it goes on at once.
    held_until timestamptz,
    PRIMARY KEY (execution, number),
    CONSTRAINT generation_border UNIQUE (execution, base_seq)
);
CREATE INDEX generation_kept ON generation (began_at) WHERE NOT forgotten;

-- What RetryWorkflow did.
CREATE TABLE retry (
    execution  bigint NOT NULL REFERENCES execution (id),
    number     integer NOT NULL CHECK (number > 0),
    from_seq   bigint NOT NULL CHECK (from_seq > 0),
    error      text NOT NULL,
    reason     text NOT NULL,
    retried_at timestamptz NOT NULL,
    PRIMARY KEY (execution, number)
);

-- A run that waits was given another program. A row is kept as long as its run.
CREATE TABLE program_change (
    organization bigint NOT NULL CHECK (organization > 0),
    execution    bigint NOT NULL REFERENCES execution (id),
    -- The end of the history at that time.
    last_seq     bigint NOT NULL CHECK (last_seq >= 0),
    -- Counts the changes of a run, from 1.
    number       integer NOT NULL CHECK (number > 0),
    -- The main file's SHA-256 before.
    replaced     bytea NOT NULL CHECK (octet_length(replaced) = 32),
    reason       text NOT NULL,
    changed_by   text NOT NULL,
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, execution, number)
);

-- The executions that are running. An index that looks at a state has every turn that changes it write a row anew into all
-- indexes of the table; a table of its own costs one short row when an execution starts to run, and its deletion.
CREATE TABLE runnable (
    execution    bigint PRIMARY KEY,
    -- Since when an execution can run: the oldest says whether runs wait for places (lockstep_runs_oldest_runnable_age_seconds).
    since        timestamptz NOT NULL DEFAULT now(),
    -- Whose a runnable execution is: after a crash, organizations have theirs claimed in turns (Claim). 0 where a process of an earlier release
    -- has stored the row.
    organization bigint NOT NULL DEFAULT 0 CHECK (organization >= 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runnable_of_organization ON runnable (organization, execution);

-- The trace in which an execution was asked for, in W3C form, so that what it does is recorded there, whichever process
-- does it and however much later. A table of its own: most installations record no traces, and then it is empty.
CREATE TABLE trace (
    execution bigint PRIMARY KEY REFERENCES execution (id),
    parent    text NOT NULL CHECK (parent <> '')
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- One row for each process that drives executions.
CREATE TABLE lease (
    instance    text PRIMARY KEY,
    epoch       bigint NOT NULL,
    until       timestamptz NOT NULL,
    -- Which execution a process tries that is suspected of killing processes (core/engine/quarantine.go), and whether the process ended in order. A process
    -- that died without one says that something else kills: unexplained is that of the one before under this name.
    trial       bigint,
    ended       boolean NOT NULL DEFAULT false,
    unexplained boolean NOT NULL DEFAULT false,
    -- The epoch whose process understands references to payloads. They are written once all live processes do.
    payloads    bigint NOT NULL DEFAULT 0
);

CREATE TABLE child (
    organization bigint NOT NULL CHECK (organization > 0),
    workflow     text NOT NULL,
    -- The run that has started it, and the one that all of its line descends from, which decides what it may change.
    parent       bigint NOT NULL,
    root         text NOT NULL,
    -- Whether it continues when its parent ends.
    detached     boolean NOT NULL,
    -- Its parent has ended, and it is to be cancelled.
    orphaned     boolean NOT NULL DEFAULT false,
    started_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, workflow),
    CONSTRAINT child_orphaned CHECK (NOT (detached AND orphaned))
);
COMMENT ON TABLE child IS 'Who started a run. As execution and entry, the record of runs, it is kept.';
CREATE INDEX child_of_parent ON child (organization, parent) WHERE NOT detached AND NOT orphaned;
CREATE INDEX child_to_cancel ON child (organization, workflow) WHERE orphaned;

-- What runs report of themselves (set_status). Rows end with their run's row.
CREATE TABLE status (
    organization bigint NOT NULL CHECK (organization > 0),
    execution    bigint NOT NULL,
    key          text NOT NULL CHECK (key <> ''),
    -- A string, a number or a bool.
    value        jsonb NOT NULL,
    set_at       timestamptz NOT NULL,
    PRIMARY KEY (organization, execution, key)
);

-- +goose Down
DROP TABLE status;
DROP TABLE child;
DROP TABLE lease;
DROP TABLE trace;
DROP TABLE runnable;
DROP TABLE program_change;
DROP TABLE retry;
DROP TABLE generation;
DROP TABLE entry;
DROP TABLE execution;
