-- +goose Up

-- refusal: what was left out of the deliveries of a hook, or of a token (token:<name>), and why. Only the last of each sender are kept.
CREATE TABLE refusal (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sender   text        NOT NULL,
    what     text        NOT NULL,
    reason   text        NOT NULL,
    -- times counts how often the same was left out.
    times    bigint      NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    UNIQUE (sender, what, reason)
);

CREATE INDEX refusal_last ON refusal (sender, last_at DESC);

-- +goose Down
DROP TABLE refusal;
