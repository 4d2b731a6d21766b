-- +goose Up

-- What the domain service has granted to the runs of rollouts. Rows are only added: a grant ends with the rollout (guarded_run.revoked).
CREATE TABLE passage (
    organization bigint      NOT NULL CHECK (organization > 0),
    workflow     text        NOT NULL,
    environment  bigint      NOT NULL CHECK (environment > 0),
    -- In percent; 0 for the entrance of the environment.
    weight       integer     NOT NULL CHECK (weight BETWEEN 0 AND 100),
    granted_at   timestamptz NOT NULL,
    -- What the entrance opens, and the weights that need a passage of their own.
    places       jsonb       NOT NULL CHECK (jsonb_typeof(places) = 'array'),
    pinned       integer[]   NOT NULL,
    PRIMARY KEY (organization, workflow, environment, weight)
);

-- What else decides about the calls of a rollout's run. A run without a row is in progress, and has no abort behind it.
CREATE TABLE guarded_run (
    organization bigint  NOT NULL CHECK (organization > 0),
    workflow     text    NOT NULL,
    -- The rollout has ended.
    revoked      boolean NOT NULL DEFAULT false,
    aborted_at   timestamptz,
    retried_at   timestamptz,
    PRIMARY KEY (organization, workflow)
);

-- What belongs to environments, as the domain service reports it: a row for what an environment has by itself, and one for each application.
CREATE TABLE territory (
    organization bigint  NOT NULL CHECK (organization > 0),
    environment  bigint  NOT NULL CHECK (environment > 0),
    -- 0 for what the environment has by itself, and for what it is.
    application  bigint  NOT NULL CHECK (application >= 0),
    name         text    NOT NULL,
    -- Of two reports about the same, that with the higher sequence counts.
    sequence     bigint  NOT NULL CHECK (sequence > 0),
    protected    boolean NOT NULL,
    archived     boolean NOT NULL,
    places       jsonb   NOT NULL CHECK (jsonb_typeof(places) = 'array'),
    PRIMARY KEY (organization, environment, application)
);

-- Incremented with every change of an organization's territories, so that replicas know when to read them again.
CREATE TABLE territory_version (
    organization bigint PRIMARY KEY CHECK (organization > 0),
    version      bigint NOT NULL CHECK (version > 0)
);

-- +goose Down
DROP TABLE territory_version;
DROP TABLE territory;
DROP TABLE guarded_run;
DROP TABLE passage;
