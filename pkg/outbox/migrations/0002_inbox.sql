-- +goose Up
-- The events that this service has applied, or refused for good.
CREATE TABLE inbox (
    source          text        NOT NULL,
    event_id        text        NOT NULL,
    -- Whose outbox it came from, the sequence and its place in it; null for an event that came from no outbox.
    sender          text,
    epoch           text,
    position        bigint      CHECK (position > 0),
    -- The lowest position that the sender still had when it sent the event: what is below will never come.
    base            bigint      CHECK (base > 0 AND base <= position),
    -- How often it has arrived.
    claims          integer     NOT NULL DEFAULT 1,
    claimed_at      timestamptz NOT NULL,
    -- Set for an event that was refused: it is closed, as if it had been applied.
    rejected_reason text,
    CONSTRAINT inbox_event_once PRIMARY KEY (source, event_id),
    CONSTRAINT inbox_position_whole CHECK ((position IS NULL) = (sender IS NULL) AND (position IS NULL) = (epoch IS NULL) AND (position IS NULL) = (base IS NULL))
);
-- Not unique: a sender whose database was set back may give a position out twice before it notices.
CREATE INDEX inbox_position ON inbox (sender, epoch, position) WHERE position IS NOT NULL;
CREATE INDEX inbox_age ON inbox (claimed_at);

-- How far each sender's sequence has arrived without a gap.
CREATE TABLE inbox_mark (
    sender     text        NOT NULL,
    epoch      text        NOT NULL,
    mark       bigint      NOT NULL DEFAULT 0 CHECK (mark >= 0),
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (sender, epoch)
);

-- +goose Down
DROP TABLE inbox_mark;
DROP TABLE inbox;
