-- Artifact sources, and when they are looked at.

-- +goose Up
-- The artifact sources that the domain has, so that looking at them goes on while the domain is away.
CREATE TABLE source (
    -- These two are the domain's.
    id               bigint      PRIMARY KEY,
    organization_id  bigint      NOT NULL,
    source_ref       text        NOT NULL,
    source_config    jsonb       NOT NULL,
    -- A digest of the two above.
    revision         text        NOT NULL,
    name             text        NOT NULL,
    place            text        NOT NULL,
    interval_seconds integer     NOT NULL CHECK (interval_seconds >= 0),
    -- The pull that had it last: what a whole pull does not have is gone.
    pulled_at        timestamptz NOT NULL,
    -- When it is looked at next, or when who looks now has to have answered; null: when somebody asks.
    next_at          timestamptz,
    -- How often somebody said that there is something new: a look that began before does not put it off.
    nudges           integer     NOT NULL DEFAULT 0,
    looked_at        timestamptz,
    -- What the last look noted for the next.
    memory           jsonb,
    failures         integer     NOT NULL DEFAULT 0,
    last_error       text        NOT NULL DEFAULT '',
    last_artifact    text        NOT NULL DEFAULT '',
    last_artifact_at timestamptz
);
CREATE INDEX source_due ON source (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX source_name ON source (source_ref, name);

-- +goose Down
DROP TABLE source;
