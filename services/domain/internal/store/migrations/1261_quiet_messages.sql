-- Quiet hours count when a message is sent, and not only when it is made (D62).

-- +goose Up
ALTER TABLE cd_notification_messages ADD COLUMN quiet jsonb
    CONSTRAINT cd_notification_messages_quiet_is_an_object CHECK (jsonb_typeof(quiet) = 'object' AND octet_length(quiet::text) <= 1000);
COMMENT ON COLUMN cd_notification_messages.quiet IS 'The quiet hours of the route or subscription that made it last: what is not of high severity is not sent within them. Null for none.';

-- +goose Down
ALTER TABLE cd_notification_messages DROP COLUMN quiet;
