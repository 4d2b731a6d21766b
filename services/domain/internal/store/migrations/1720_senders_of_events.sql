-- Who has sent an event to a trigger (D58), and what keeps an edit from being made of its own commit, or too often (R4-28).

-- +goose Up
ALTER TABLE cd_trigger_signals
    ADD COLUMN sender_type text,
    ADD COLUMN sender_id bigint,
    ADD COLUMN sender_name text,
    ADD CONSTRAINT cd_trigger_signals_sender_is_whole CHECK ((sender_type IS NULL) = (sender_id IS NULL) AND (sender_type IS NULL) = (sender_name IS NULL));
COMMENT ON COLUMN cd_trigger_signals.sender_type IS 'What kind of principal has sent the event; NULL, as the other two, for what nobody sent, and for events of before it was kept.';
COMMENT ON COLUMN cd_trigger_signals.sender_name IS 'What the sender was called then.';
CREATE INDEX cd_trigger_signals_committed ON cd_trigger_signals (organization_id, ((edit ->> 'commit') COLLATE "C")) WHERE edit ->> 'state' = 'committed';
CREATE INDEX cd_trigger_signals_lately ON cd_trigger_signals (organization_id, trigger_id, decided_at)
    WHERE outcome IN ('began', 'queued') OR edit ->> 'state' IN ('committed', 'proposed');

-- +goose Down
DROP INDEX cd_trigger_signals_lately;
DROP INDEX cd_trigger_signals_committed;
ALTER TABLE cd_trigger_signals
    DROP CONSTRAINT cd_trigger_signals_sender_is_whole,
    DROP COLUMN sender_name,
    DROP COLUMN sender_id,
    DROP COLUMN sender_type;
