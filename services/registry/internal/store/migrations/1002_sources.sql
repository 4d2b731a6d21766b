-- Artifact sources, and when they are looked at.

-- +goose Up
-- The artifact sources of the domain service, so that they are polled also while that service is unreachable.
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
    -- When it is polled next, or until when the present poll has to end; null: only on request.
    next_at          timestamptz,
    -- Counts the notifications of something new: a poll that began before one does not postpone the next.
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
