-- Who has sent an event to a trigger (D58).

-- +goose Up
ALTER TABLE cd_trigger_signals
    ADD COLUMN sender_type text,
    ADD COLUMN sender_id bigint,
    ADD COLUMN sender_name text,
    ADD CONSTRAINT cd_trigger_signals_sender_is_whole CHECK ((sender_type IS NULL) = (sender_id IS NULL) AND (sender_type IS NULL) = (sender_name IS NULL));
COMMENT ON COLUMN cd_trigger_signals.sender_type IS 'What kind of principal has sent the event; NULL, as the other two, for what nobody sent, and for events of before it was kept.';
COMMENT ON COLUMN cd_trigger_signals.sender_name IS 'What the sender was called then.';

-- +goose Down
ALTER TABLE cd_trigger_signals
    DROP CONSTRAINT cd_trigger_signals_sender_is_whole,
    DROP COLUMN sender_name,
    DROP COLUMN sender_id,
    DROP COLUMN sender_type;
