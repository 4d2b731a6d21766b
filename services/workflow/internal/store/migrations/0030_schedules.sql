-- +goose Up

-- Programs that are started at given times. A row ends with the schedule; runs that it has started stay.
CREATE TABLE schedule (
    organization bigint      NOT NULL CHECK (organization > 0),
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    name         text        NOT NULL CHECK (name <> ''),
    version      integer     NOT NULL CHECK (version > 0),
    -- When it is due: expressions, interval, time zone, bounds and jitter.
    spec         json        NOT NULL,
    overlap      text        NOT NULL CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'allow')),
    -- How late a run may start, in nanoseconds.
    catch_up     bigint      NOT NULL CHECK (catch_up > 0),
    program      bytea       NOT NULL REFERENCES program,
    -- Module name → hexadecimal digest of its source.
    modules      json        NOT NULL,
    inputs       json        NOT NULL,
    secrets      json        NOT NULL,
    labels       json        NOT NULL,
    -- Of all of the above: the same content again is no new version.
    digest       bytea       NOT NULL CHECK (octet_length(digest) = 32),
    paused       boolean     NOT NULL DEFAULT false,
    note         text        NOT NULL DEFAULT '',
    -- The first due time that was not dealt with, and the last one that was.
    next_due     timestamptz,
    last_due     timestamptz,
    -- When it is to be looked at; NULL: not until it is changed.
    attend_at    timestamptz,
    -- Counts the looks and changes.
    turn         bigint      NOT NULL DEFAULT 0,
    changed_by   text        NOT NULL,
    created_at   timestamptz NOT NULL,
    changed_at   timestamptz NOT NULL,
    started      bigint      NOT NULL DEFAULT 0,
    skipped      bigint      NOT NULL DEFAULT 0,
    missed       bigint      NOT NULL DEFAULT 0,
    refused      bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (organization, id),
    CONSTRAINT schedule_name_once UNIQUE (organization, name)
);
CREATE INDEX schedule_attend ON schedule (attend_at) WHERE attend_at IS NOT NULL;

-- What became of the due times of schedules: those that are open, and the last 100 of each schedule.
CREATE TABLE schedule_fire (
    organization bigint      NOT NULL,
    schedule     bigint      NOT NULL,
    due          timestamptz NOT NULL,
    state        text        NOT NULL CHECK (state IN ('waiting', 'starting', 'started', 'done', 'skipped', 'missed', 'refused')),
    backfill     boolean     NOT NULL,
    -- The policy of a backfill; empty for the schedule's.
    overlap      text        NOT NULL CHECK (overlap IN ('', 'skip', 'buffer_one', 'buffer_all', 'cancel_other', 'allow')),
    -- How many due times from this one on the row stands for.
    count        bigint      NOT NULL CHECK (count > 0),
    detail       text        NOT NULL,
    workflow     text        NOT NULL,
    PRIMARY KEY (organization, schedule, due),
    FOREIGN KEY (organization, schedule) REFERENCES schedule ON DELETE CASCADE
);
CREATE INDEX schedule_fire_open ON schedule_fire (organization, schedule, due) WHERE state IN ('waiting', 'starting', 'started');

-- +goose Down
DROP TABLE schedule_fire, schedule;
