-- +goose Up
-- The events that this service has emitted and whose receivers have not all confirmed them.
CREATE TABLE outbox (
    -- Order of insertion, which is not the order of commit.
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- source and event_id together identify a CloudEvent.
    source          text        NOT NULL CHECK (source <> ''),
    event_id        text        NOT NULL CHECK (event_id <> ''),
    -- The event as the caller made it, as CloudEvents JSON, kept to the byte.
    event           json        NOT NULL,
    -- Whether the receivers confirm it; if not, the stream's acknowledgement is enough (calls to a cluster, which
    -- their answer confirms).
    receipted       boolean     NOT NULL,
    -- Its place in the gapless sequence that receipts count in, given by the active sender. It never changes within an epoch.
    position        bigint      CHECK (position > 0),
    -- How often it has been published.
    attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_attempt_at timestamptz NOT NULL DEFAULT '-infinity',
    -- Why it could not be published, for an operator.
    last_error      text,
    added_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_event_once UNIQUE (source, event_id),
    CONSTRAINT outbox_position_once UNIQUE (position),
    CONSTRAINT outbox_position_if_receipted CHECK (receipted OR position IS NULL)
);
CREATE INDEX outbox_unnumbered ON outbox (id) WHERE receipted AND position IS NULL;
CREATE INDEX outbox_due ON outbox (next_attempt_at);

-- One row: how far positions have been given out.
CREATE TABLE outbox_cursor (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Names the sequence. A new one begins when this database turns out to have been set back.
    epoch    text    NOT NULL DEFAULT gen_random_uuid()::text,
    position bigint  NOT NULL DEFAULT 0 CHECK (position >= 0)
);
INSERT INTO outbox_cursor DEFAULT VALUES;

-- What each receiver has confirmed: every position up to the mark.
CREATE TABLE outbox_receiver (
    receiver     text        PRIMARY KEY,
    mark         bigint      NOT NULL DEFAULT 0 CHECK (mark >= 0),
    confirmed_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE outbox_receiver;
DROP TABLE outbox_cursor;
DROP TABLE outbox;
