-- Events, and the waits that they end.

-- +goose Up
-- Types of events that an organization has declared for its programs. A row ends when the type is deleted; events of the type stay.
CREATE TABLE event_type (
    organization bigint NOT NULL CHECK (organization > 0),
    type         text NOT NULL CHECK (type <> '' AND type !~~ 'com.gitlab.cd.%'),
    description  text NOT NULL,
    -- A JSON schema of the data.
    schema       json NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    declared_by  text NOT NULL,
    declared_at  timestamptz NOT NULL,
    PRIMARY KEY (organization, type)
);

CREATE TABLE event (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization bigint NOT NULL CHECK (organization > 0),
    source       text NOT NULL,
    event_id     text NOT NULL,
    type         text NOT NULL,
    data         json NOT NULL,
    occurred_at  timestamptz NOT NULL,
    received_at  timestamptz NOT NULL,
    CONSTRAINT event_once UNIQUE (organization, source, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX event_of_type ON event (organization, type, id);
CREATE INDEX event_received ON event USING brin (received_at);

-- The sets of filter paths in use for a type. Every event of the type has a key for each of them, and so is found by
-- an index instead of by comparing it with every parked execution.
CREATE TABLE shape (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization bigint NOT NULL,
    type         text NOT NULL,
    paths        text[] NOT NULL,
    -- Whether the events that were there before the shape have their keys.
    filled       boolean NOT NULL DEFAULT false,
    CONSTRAINT shape_once UNIQUE (organization, type, paths)
);

-- Hash of organization, type, paths and the values at them.
CREATE TABLE event_key (
    key   bytea NOT NULL CHECK (octet_length(key) = 16),
    event bigint NOT NULL,
    PRIMARY KEY (key, event)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX event_key_of_event ON event_key (event);

-- One row for each type that an open wait_for_event waits for.
CREATE TABLE wait (
    execution  bigint NOT NULL,
    branch     integer NOT NULL,
    op         integer NOT NULL,
    key        bytea NOT NULL CHECK (octet_length(key) = 16),
    shape      bigint NOT NULL,
    type       text NOT NULL,
    filter     json NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (execution, branch, op, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX wait_key ON wait (key);

-- The addresses that running programs have given out. Messages to them are events (history.TypeMessage).
CREATE TABLE channel (
    token        text PRIMARY KEY,
    execution    bigint NOT NULL,
    organization bigint NOT NULL
);
CREATE INDEX channel_of_execution ON channel (execution);

-- How far a run that has gone on in further generations has consumed all events of a key: what comes next for a wait of it is behind
-- that. Without it a run that waits for the same for ever would have every event look through all that it has consumed.
CREATE TABLE consumed (
    execution bigint NOT NULL,
    key       bytea NOT NULL CHECK (octet_length(key) = 16),
    event     bigint NOT NULL,
    PRIMARY KEY (execution, key)
);

-- Events that were consumed by entries which a retry has forgotten. The repeated wait is for another one.
CREATE TABLE spent (
    execution bigint NOT NULL REFERENCES execution (id),
    event     bigint NOT NULL,
    PRIMARY KEY (execution, event)
);

-- +goose StatementBegin
-- How many transactions wait for a lock of event matching, of all processes: those of types and keys (LockTypes, LockKeys).
CREATE FUNCTION match_waiting() RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*) FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND NOT l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (
          (l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(current_schema() || '/match', 0))
          OR (l.objsubid = 2 AND l.classid::bigint IN (
              hashtext(current_schema() || '/match/type')::bigint & 4294967295, hashtext(current_schema() || '/match/key')::bigint & 4294967295
          ))
      )
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION match_waiting;
DROP TABLE spent;
DROP TABLE consumed;
DROP TABLE channel;
DROP TABLE wait;
DROP TABLE event_key;
DROP TABLE shape;
DROP TABLE event;
DROP TABLE event_type;
