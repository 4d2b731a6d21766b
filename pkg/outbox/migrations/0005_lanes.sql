-- +goose Up
-- Events are sent by lane: those of one run and its children are in one lane, which has a sequence and an active sender of its own.
-- position, outbox_cursor and outbox_receiver are those of the release before, which knows one sequence: it may run beside this one, and
-- again after it. To it, what has a place has no position yet.
ALTER TABLE outbox
    ADD COLUMN lane  smallint,
    -- The event's place in the gapless sequence of its lane, which receipts count in. It never changes within an epoch.
    ADD COLUMN place bigint CHECK (place > 0),
    ADD CONSTRAINT outbox_place_if_receipted CHECK (receipted OR place IS NULL);

-- The lane of an event, as Go's laneOf finds it. Whatever the event holds, it answers: PostgreSQL refuses to read a member of a JSON that has
-- \u0000 or half a surrogate pair anywhere, which are taken out then, and what cannot be read at all is in lane 0.
-- +goose StatementBegin
CREATE FUNCTION outbox_lane_of(event json) RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    organization text;
    correlation  text;
BEGIN
    BEGIN
        organization := event ->> 'organizationid';
        correlation := event ->> 'correlationid';
    EXCEPTION WHEN others THEN
        event := regexp_replace(event::text, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1?', 'g')::json;
        organization := event ->> 'organizationid';
        correlation := event ->> 'correlationid';
    END;
    RETURN get_byte(sha256(convert_to(coalesce(organization, '') || '/' || regexp_replace(left(split_part(
        regexp_replace(coalesce(correlation, ''), '^(observer/)?(child:[1-9]:)?', ''), '/', 1), 150), '-cancelled$', ''), 'UTF8')), 0) & 7;
EXCEPTION WHEN others THEN
    RETURN 0;
END
$$;
-- +goose StatementEnd
UPDATE outbox SET lane = outbox_lane_of(event);

-- The release before names no lane.
-- +goose StatementBegin
CREATE FUNCTION outbox_set_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := outbox_lane_of(NEW.event);
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER outbox_lane BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.lane IS NULL) EXECUTE FUNCTION outbox_set_lane();
ALTER TABLE outbox ALTER COLUMN lane SET NOT NULL;

ALTER TABLE outbox DROP CONSTRAINT outbox_position_once;
CREATE UNIQUE INDEX outbox_position_once ON outbox (position) WHERE position IS NOT NULL;
DROP INDEX outbox_unnumbered;
CREATE UNIQUE INDEX outbox_place_once ON outbox (lane, place) WHERE place IS NOT NULL;
CREATE INDEX outbox_unplaced ON outbox (lane, id) WHERE receipted AND place IS NULL;
-- outbox_unreceipted is that of the release before.
CREATE INDEX outbox_unreceipted_of_lane ON outbox (lane, id) WHERE NOT receipted;

-- How far places have been given out in each lane.
CREATE TABLE outbox_lane (
    lane  smallint PRIMARY KEY,
    -- Names the sequence. A new one begins when this database turns out to have been set back.
    epoch text     NOT NULL DEFAULT gen_random_uuid()::text,
    place bigint   NOT NULL DEFAULT 0 CHECK (place >= 0)
);
INSERT INTO outbox_lane (lane) SELECT generate_series(0, 7);

-- What each receiver has confirmed of each lane: every place up to the mark.
CREATE TABLE outbox_mark (
    lane         smallint    NOT NULL,
    receiver     text        NOT NULL,
    mark         bigint      NOT NULL DEFAULT 0 CHECK (mark >= 0),
    confirmed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (lane, receiver)
);

-- +goose Down
DROP TABLE outbox_mark;
DROP TABLE outbox_lane;
DROP INDEX outbox_unreceipted_of_lane;
DROP INDEX outbox_unplaced;
DROP INDEX outbox_place_once;
CREATE INDEX outbox_unnumbered ON outbox (id) WHERE receipted AND position IS NULL;
DROP INDEX outbox_position_once;
ALTER TABLE outbox ADD CONSTRAINT outbox_position_once UNIQUE (position);
DROP TRIGGER outbox_lane ON outbox;
DROP FUNCTION outbox_set_lane();
ALTER TABLE outbox DROP CONSTRAINT outbox_place_if_receipted, DROP COLUMN place, DROP COLUMN lane;
DROP FUNCTION outbox_lane_of(json);
