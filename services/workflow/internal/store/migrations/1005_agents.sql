-- Agents of clusters, and what they report.

-- +goose Up
-- The newest heartbeat of each agent, by this service's clock.
CREATE TABLE agent (
    id        bigint PRIMARY KEY,
    seen_at   timestamptz NOT NULL,
    -- Whether its cluster answers, and what it says where it does not.
    reachable boolean NOT NULL,
    message   text NOT NULL
);

-- Whose agents are, as the domain service has said. Programs of an organization call its agents and no others.
CREATE TABLE agent_owner (
    id           bigint PRIMARY KEY CHECK (id > 0),
    organization bigint NOT NULL CHECK (organization > 0),
    -- Never taken back.
    revoked      boolean NOT NULL
);

-- What relays report to running executions. A row counts for as long as its execution has not ended.
CREATE TABLE watch (
    -- The activity that asked for it.
    id         text PRIMARY KEY,
    execution  bigint NOT NULL REFERENCES execution (id) ON DELETE CASCADE,
    agent      bigint NOT NULL CHECK (agent > 0),
    -- Kind, name and fields, as agent.WatchSpec has them.
    spec       json NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX watch_of_agent ON watch (agent);
CREATE INDEX watch_of_execution ON watch (execution);

-- What is reported for as long as nobody says otherwise, whether an execution runs or not. Another registration under the same key
-- takes the place of the one before.
CREATE TABLE observer (
    organization bigint NOT NULL CHECK (organization > 0),
    key          text NOT NULL,
    -- Every registration is a watch of its own to the relay: "observer/<organization>/<key>/<version>".
    version      bigint NOT NULL DEFAULT 1,
    agent        bigint NOT NULL CHECK (agent > 0),
    -- agent.StandingReport.
    spec         json NOT NULL,
    created_at   timestamptz NOT NULL,
    -- What was emitted last, and when it was observed; null before the first time.
    report       json,
    reported_at  timestamptz,
    PRIMARY KEY (organization, key)
);
CREATE INDEX observer_of_agent ON observer (agent);

-- +goose Down
DROP TABLE observer;
DROP TABLE watch;
DROP TABLE agent_owner;
DROP TABLE agent;
