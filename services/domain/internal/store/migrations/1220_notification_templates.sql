-- What is wrong with the template of a message (D62).

-- +goose Up
ALTER TABLE cd_notification_messages ADD COLUMN template_error text NOT NULL DEFAULT ''
    CONSTRAINT cd_notification_messages_template_error_is_bounded CHECK (octet_length(template_error) <= 4000);
COMMENT ON COLUMN cd_notification_messages.template_error IS 'Why a template of the organization could not be filled in, so that the default was sent; empty if it could.';

-- +goose Down
ALTER TABLE cd_notification_messages DROP COLUMN template_error;
