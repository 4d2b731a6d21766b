-- What runs of rollouts may change, and when.

-- +goose Up
CREATE TABLE passage (
    organization bigint NOT NULL CHECK (organization > 0),
    workflow     text NOT NULL,
    environment  bigint NOT NULL CHECK (environment > 0),
    -- In percent; 0 for the entrance of the environment.
    weight       integer NOT NULL CHECK (weight >= 0 AND weight <= 100),
    granted_at   timestamptz NOT NULL,
    -- What the entrance opens, and the weights that need a passage of their own.
    places       jsonb NOT NULL CHECK (jsonb_typeof(places) = 'array'),
    pinned       integer[] NOT NULL,
    PRIMARY KEY (organization, workflow, environment, weight)
);
COMMENT ON TABLE passage IS 'What the run of a rollout may change. Deleted with the end of the rollout.';

CREATE TABLE guarded_run (
    organization bigint NOT NULL CHECK (organization > 0),
    workflow     text NOT NULL,
    -- The rollout has ended.
    revoked      boolean NOT NULL DEFAULT false,
    aborted_at   timestamptz,
    retried_at   timestamptz,
    PRIMARY KEY (organization, workflow)
);
COMMENT ON TABLE guarded_run IS 'What is known of the run of a rollout beside its passages. One row for a rollout; kept, because an event that arrives late must find that the rollout has ended.';

-- What belongs to environments, as the domain service reports it: a row for what an environment has by itself, and one for each application.
CREATE TABLE territory (
    organization bigint NOT NULL CHECK (organization > 0),
    environment  bigint NOT NULL CHECK (environment > 0),
    -- 0 for what the environment has by itself, and for what it is.
    application  bigint NOT NULL CHECK (application >= 0),
    name         text NOT NULL,
    -- Of two reports about the same, that with the higher sequence counts.
    sequence     bigint NOT NULL CHECK (sequence > 0),
    protected    boolean NOT NULL,
    archived     boolean NOT NULL,
    places       jsonb NOT NULL CHECK (jsonb_typeof(places) = 'array'),
    PRIMARY KEY (organization, environment, application)
);

-- Incremented with every change of an organization's territories, so that replicas know when to read them again.
CREATE TABLE territory_version (
    organization bigint PRIMARY KEY CHECK (organization > 0),
    version      bigint NOT NULL CHECK (version > 0)
);

-- The latest versions of the policy sets that decide about calls of Functions, as the domain service reports them. Rows are kept: a set that
-- is off, or says nothing of calls any more, is reported so.
CREATE TABLE call_policy (
    organization bigint NOT NULL CHECK (organization > 0),
    name         text NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    mode         text NOT NULL,
    time_zone    text NOT NULL,
    -- In Cedar; empty where none of them is about calls.
    policies     text NOT NULL CHECK (octet_length(policies) <= 65536),
    -- 0 for none: it is about the organization then.
    application  bigint NOT NULL CHECK (application >= 0),
    environment  bigint NOT NULL CHECK (environment >= 0),
    PRIMARY KEY (organization, name)
);

-- The credentials of organizations, as the domain service reports them, with values that are sealed or references. Rows are kept: a
-- credential that was revoked is reported so, and has no value.
CREATE TABLE credential (
    organization bigint NOT NULL CHECK (organization > 0),
    name         text NOT NULL,
    -- Orders reports.
    sequence     bigint NOT NULL,
    -- Counts the values.
    version      integer NOT NULL CHECK (version > 0),
    kind         text NOT NULL,
    -- What the value may be sent to.
    url_prefixes text[] NOT NULL,
    username     text NOT NULL,
    header       text NOT NULL,
    forge        text NOT NULL,
    -- Empty for a sealed value.
    reference    text NOT NULL,
    sealed       bytea CHECK (octet_length(sealed) <= 98304),
    revoked      boolean NOT NULL,
    PRIMARY KEY (organization, name),
    CONSTRAINT credential_check CHECK (NOT revoked OR reference = '' AND sealed IS NULL)
);

-- +goose Down
DROP TABLE credential;
DROP TABLE call_policy;
DROP TABLE territory_version;
DROP TABLE territory;
DROP TABLE guarded_run;
DROP TABLE passage;
