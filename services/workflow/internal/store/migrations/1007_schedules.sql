-- Schedules, and operations on many runs.

-- +goose Up
-- Programs that are started at given times. A row ends with the schedule; runs that it has started stay.
CREATE TABLE schedule (
    organization bigint NOT NULL CHECK (organization > 0),
    id           bigint GENERATED ALWAYS AS IDENTITY,
    name         text NOT NULL CHECK (name <> ''),
    version      integer NOT NULL CHECK (version > 0),
    -- When it is due: expressions, interval, time zone, bounds and jitter.
    spec         json NOT NULL,
    overlap      text NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'allow')),
    -- How late a run may start, in nanoseconds.
    catch_up     bigint NOT NULL CHECK (catch_up > 0),
    program      bytea NOT NULL REFERENCES program (digest),
    -- Module name → hexadecimal digest of its source.
    modules      json NOT NULL,
    inputs       json NOT NULL,
    secrets      json NOT NULL,
    labels       json NOT NULL,
    -- Of all of the above: the same content again is no new version.
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    paused       boolean NOT NULL DEFAULT false,
    note         text NOT NULL DEFAULT '',
    -- The first due time that was not dealt with, and the last one that was.
    next_due     timestamptz,
    last_due     timestamptz,
    -- When it is to be looked at; NULL: not until it is changed.
    attend_at    timestamptz,
    -- Counts the looks and changes.
    turn         bigint NOT NULL DEFAULT 0,
    changed_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    changed_at   timestamptz NOT NULL,
    started      bigint NOT NULL DEFAULT 0,
    skipped      bigint NOT NULL DEFAULT 0,
    missed       bigint NOT NULL DEFAULT 0,
    refused      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (organization, id),
    CONSTRAINT schedule_name_once UNIQUE (organization, name)
);
CREATE INDEX schedule_attend ON schedule (attend_at) WHERE attend_at IS NOT NULL;

CREATE TABLE schedule_fire (
    organization bigint NOT NULL,
    schedule     bigint NOT NULL,
    due          timestamptz NOT NULL,
    state        text NOT NULL CHECK (state IN ('waiting', 'starting', 'started', 'done', 'skipped', 'missed', 'refused')),
    backfill     boolean NOT NULL,
    -- The policy of a backfill; empty for the schedule's.
    overlap      text NOT NULL CHECK (overlap IN ('', 'skip', 'buffer_one', 'buffer_all', 'cancel_other', 'allow')),
    -- How many due times from this one on the row stands for.
    count        bigint NOT NULL CHECK (count > 0),
    detail       text NOT NULL,
    workflow     text NOT NULL,
    PRIMARY KEY (organization, schedule, due),
    CONSTRAINT schedule_fire_organization_schedule_fkey FOREIGN KEY (organization, schedule)
        REFERENCES schedule (organization, id) ON DELETE CASCADE
);
COMMENT ON TABLE schedule_fire IS 'A due time of a schedule. Those behind the last ones are deleted unless their run is under way, and all of them with the schedule.';
CREATE INDEX schedule_fire_open ON schedule_fire (organization, schedule, due) WHERE state IN ('waiting', 'starting', 'started');

CREATE TABLE batch (
    organization bigint NOT NULL CHECK (organization > 0),
    id           bigint GENERATED ALWAYS AS IDENTITY,
    action       text NOT NULL CHECK (action IN ('cancel', 'terminate', 'retry', 'reset')),
    state        text NOT NULL CHECK (state IN ('running', 'done', 'stopped')),
    -- Which runs: conditions, or ids.
    filter       json NOT NULL,
    reason       text NOT NULL,
    started_by   text NOT NULL,
    -- How many runs a second.
    rate         integer NOT NULL CHECK (rate > 0),
    "position"   bigint NOT NULL,
    done         bigint NOT NULL DEFAULT 0,
    refused      bigint NOT NULL DEFAULT 0,
    last_refusal text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    -- When the next runs are taken; NULL once it has ended.
    next_at      timestamptz,
    PRIMARY KEY (organization, id),
    CONSTRAINT batch_ended CHECK ((state = 'running') = (ended_at IS NULL) AND (state = 'running') = (next_at IS NOT NULL))
);
COMMENT ON TABLE batch IS 'A batch of changes to many runs. An ended one is deleted after 30 days, and behind the last thousand of its organization.';
CREATE INDEX batch_next ON batch (next_at) WHERE next_at IS NOT NULL;

-- +goose Down
DROP TABLE batch;
DROP TABLE schedule_fire;
DROP TABLE schedule;
