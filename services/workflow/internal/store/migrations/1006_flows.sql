-- Flows: programs that events start.

-- +goose Up
-- +goose StatementBegin
-- An event meets its handlers in the transaction that stores it, whichever statement that is: there is no moment at which
-- an event is stored and its handlers do not know of it.
CREATE FUNCTION flow_meets_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO flow_work (event, handler, next_at)
    SELECT stored.id, flow_trigger.handler, stored.received_at
    FROM stored JOIN flow_trigger ON flow_trigger.organization = stored.organization AND flow_trigger.type = stored.type;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Programs that events start, one row for each version that was registered. A version that was replaced or deleted is kept:
-- events that it has met may still be on their way.
CREATE TABLE flow (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization  bigint NOT NULL CHECK (organization > 0),
    name          text NOT NULL CHECK (name <> ''),
    version       integer NOT NULL CHECK (version > 0),
    program       bytea NOT NULL REFERENCES program (digest),
    -- Module name → hexadecimal digest of its source.
    modules       json NOT NULL,
    inputs        json NOT NULL,
    secrets       json NOT NULL,
    labels        json NOT NULL,
    -- Of all of the above: the same content again is no new version.
    digest        bytea NOT NULL CHECK (octet_length(digest) = 32),
    registered_at timestamptz NOT NULL,
    retired_at    timestamptz,
    started       bigint NOT NULL DEFAULT 0,
    refused       bigint NOT NULL DEFAULT 0,
    last_refusal  text NOT NULL DEFAULT '',
    CONSTRAINT flow_version_once UNIQUE (organization, name, version)
);
CREATE UNIQUE INDEX flow_current ON flow (organization, name) WHERE retired_at IS NULL;

CREATE TABLE flow_handler (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow       bigint NOT NULL REFERENCES flow (id),
    -- The number of its on_event in the program, from 0.
    place      integer NOT NULL,
    types      text[] NOT NULL,
    filter     json NOT NULL,
    function   text NOT NULL,
    "position" text NOT NULL,
    CONSTRAINT flow_handler_once UNIQUE (flow, place)
);

-- The handlers of current versions, by what may start them.
CREATE TABLE flow_trigger (
    organization bigint NOT NULL,
    type         text NOT NULL,
    handler      bigint NOT NULL REFERENCES flow_handler (id),
    PRIMARY KEY (organization, type, handler)
);

-- Events that have met a handler of their type, until a run was started or the filter left them out.
CREATE TABLE flow_work (
    event   bigint NOT NULL REFERENCES event (id) ON DELETE CASCADE,
    handler bigint NOT NULL REFERENCES flow_handler (id),
    attempt integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,
    PRIMARY KEY (event, handler)
);
CREATE INDEX flow_work_next ON flow_work (next_at);

CREATE TRIGGER event_meets_flows AFTER INSERT ON event REFERENCING NEW TABLE AS stored EXECUTE FUNCTION flow_meets_events();

-- +goose Down
DROP TRIGGER event_meets_flows ON event;
DROP TABLE flow_work;
DROP TABLE flow_trigger;
DROP TABLE flow_handler;
DROP TABLE flow;
DROP FUNCTION flow_meets_events;
