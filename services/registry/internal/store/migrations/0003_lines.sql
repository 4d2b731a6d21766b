-- +goose Up

-- line stands for a tag, or a branch, of a sender without identifiers of its own: what was told of it last is the row with
-- the highest seq. Null for all others, and for what was told before there were lines.
ALTER TABLE told
    ADD COLUMN line uuid,
    ADD COLUMN seq bigint GENERATED ALWAYS AS IDENTITY;

CREATE INDEX told_line ON told (line, seq DESC) WHERE line IS NOT NULL;
