-- Edits of files that events make (R4-28).

-- +goose Up
ALTER TABLE cd_trigger_signals ADD COLUMN edit jsonb CONSTRAINT cd_trigger_signals_edit_is_bounded CHECK (jsonb_typeof(edit) = 'object' AND octet_length(edit::text) <= 262144);
COMMENT ON COLUMN cd_trigger_signals.edit IS 'The edit of files that the event makes before anything is decided, and how far it has come; NULL for none.';

-- +goose Down
ALTER TABLE cd_trigger_signals DROP COLUMN edit;
