-- Channels of Opsgenie, and subjects of NATS servers (D62).

-- +goose Up
ALTER TABLE cd_notification_channels DROP CONSTRAINT cd_notification_channels_kind_is_known;
ALTER TABLE cd_notification_channels ADD CONSTRAINT cd_notification_channels_kind_is_known
    CHECK (kind IN ('slack', 'teams', 'mattermost', 'discord', 'email', 'pagerduty', 'opsgenie', 'webhook', 'nats'));

-- +goose Down
ALTER TABLE cd_notification_channels DROP CONSTRAINT cd_notification_channels_kind_is_known;
ALTER TABLE cd_notification_channels ADD CONSTRAINT cd_notification_channels_kind_is_known
    CHECK (kind IN ('slack', 'teams', 'mattermost', 'discord', 'email', 'pagerduty', 'webhook')) NOT VALID;
