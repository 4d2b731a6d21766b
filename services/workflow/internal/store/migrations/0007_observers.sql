-- +goose Up

-- What is reported of for as long as nobody says otherwise, whether an execution runs or not (R46). Another registration
-- under the same key takes the place of the one before.
CREATE TABLE observer (
    organization bigint      NOT NULL CHECK (organization > 0),
    key          text        NOT NULL,
    -- Every registration is a watch of its own to the relay: "observer/<organization>/<key>/<version>".
    version      bigint      NOT NULL DEFAULT 1,
    agent        bigint      NOT NULL CHECK (agent > 0),
    -- agent.StandingReport.
    spec         json        NOT NULL,
    created_at   timestamptz NOT NULL,
    -- What was emitted last, and when it was observed; null before the first time.
    said         json,
    said_at      timestamptz,
    PRIMARY KEY (organization, key)
);
CREATE INDEX observer_of_agent ON observer (agent);

-- The newest heartbeat of each agent, by this service's clock.
CREATE TABLE agent (
    id        bigint      PRIMARY KEY,
    seen_at   timestamptz NOT NULL,
    -- Whether its cluster answers, and what it says where it does not.
    reachable boolean     NOT NULL,
    message   text        NOT NULL
);

-- +goose Down
DROP TABLE agent;
DROP TABLE observer;
