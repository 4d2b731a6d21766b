-- How many messages all members of a channel receive within a minute (D62).

-- +goose Up
ALTER TABLE cd_notification_messages ADD COLUMN slotted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cd_notification_messages.slotted IS 'Whether due_at is its turn among the messages to all members of its channel: it waits for that once.';
COMMENT ON COLUMN cd_notification_channels.window_at IS 'When the present minute began; of a channel that reaches members, when the next of their messages has its turn.';

-- +goose Down
COMMENT ON COLUMN cd_notification_channels.window_at IS 'When the present minute began.';
ALTER TABLE cd_notification_messages DROP COLUMN slotted;
