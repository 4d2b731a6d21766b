-- What registries have reported to hooks.

-- +goose Up
-- +goose StatementBegin
DO $$ BEGIN
    IF to_regclass('hint') IS NOT NULL THEN
        RAISE EXCEPTION 'these tables were made by a build from before version 0.1.0, whose migrations no longer exist: found hint; expected an empty schema'
            USING HINT = 'Start with another schema or database: the registry service finds all of it again.';
    END IF;
END $$;
-- +goose StatementEnd

-- What a hook was sent and its registry has not confirmed yet.
CREATE TABLE hint (
    id           uuid        PRIMARY KEY,
    hook         text        NOT NULL,
    notification jsonb       NOT NULL,
    -- The image and its tag or digest, for people.
    reference    text        NOT NULL,
    -- How often it was sent: a hint that is sent again while the registry is asked is asked about again.
    heard        integer     NOT NULL DEFAULT 1,
    heard_at     timestamptz NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    last_error   text        NOT NULL DEFAULT '',
    -- When the registry is asked next, or when who asks now has to have answered; null: given up.
    next_at      timestamptz
);
CREATE INDEX hint_due ON hint (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX hint_hook ON hint (hook, heard_at);

-- The events that hooks' deliveries have become, so that a delivery that is replayed has no effect, however late.
CREATE TABLE reported (
    id          uuid        PRIMARY KEY,
    hook        text        NOT NULL,
    reference   text        NOT NULL,
    reported_at timestamptz NOT NULL,
    -- Stands for a tag, or a branch, of a sender without identifiers of its own: what it has reported last is the row with the highest
    -- seq. Null for all others.
    line        uuid,
    seq         bigint      GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX reported_by_hook ON reported (hook, reported_at DESC);
CREATE INDEX reported_by_line ON reported (line, seq DESC) WHERE line IS NOT NULL;
CREATE INDEX reported_by_time ON reported (reported_at);

-- What was left out of the deliveries of a hook, or of a token (token:<name>), and why. Only the last of each sender are kept.
CREATE TABLE refusal (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sender   text        NOT NULL,
    what     text        NOT NULL,
    reason   text        NOT NULL,
    -- How often the same was left out.
    times    bigint      NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    UNIQUE (sender, what, reason)
);
CREATE INDEX refusal_last ON refusal (sender, last_at DESC);

-- +goose Down
DROP TABLE refusal, reported, hint;
