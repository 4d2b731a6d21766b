-- +goose Up

-- hint: what a hook told and its registry has not confirmed yet.
CREATE TABLE hint (
    id           uuid        PRIMARY KEY,
    hook         text        NOT NULL,
    notification jsonb       NOT NULL,
    -- reference is the image and its tag or digest, for people.
    reference    text        NOT NULL,
    -- heard counts how often it was told: a hint told again while the registry is asked is asked about again.
    heard        integer     NOT NULL DEFAULT 1,
    heard_at     timestamptz NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    last_error   text        NOT NULL DEFAULT '',
    -- next_at is when the registry is asked next, or when who asks now has to have answered; null: given up.
    next_at      timestamptz
);

CREATE INDEX hint_due ON hint (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX hint_hook ON hint (hook, heard_at);

-- told: the events that hooks' deliveries have become, so that a delivery that is replayed has no effect, however late.
CREATE TABLE told (
    id        uuid        PRIMARY KEY,
    hook      text        NOT NULL,
    reference text        NOT NULL,
    told_at   timestamptz NOT NULL
);

CREATE INDEX told_hook ON told (hook, told_at DESC);
CREATE INDEX told_at ON told (told_at);
