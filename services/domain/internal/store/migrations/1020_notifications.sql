-- Notifications: channels, routes, and messages on their way.

-- +goose Up
CREATE TABLE cd_notification_channels (
    organization_id bigint NOT NULL CONSTRAINT cd_notification_channels_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    name            text NOT NULL,
    kind            text NOT NULL,
    config          jsonb NOT NULL,
    rate            integer NOT NULL,
    enabled         boolean NOT NULL,
    window_at       timestamptz NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    window_count    integer NOT NULL DEFAULT 0,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notification_channels_config_is_an_object CHECK (jsonb_typeof(config) = 'object'),
    CONSTRAINT cd_notification_channels_config_is_bounded CHECK (length((config)::text) <= 16384),
    CONSTRAINT cd_notification_channels_kind_is_known
        CHECK (kind IN ('slack', 'teams', 'mattermost', 'discord', 'email', 'pagerduty', 'webhook')),
    CONSTRAINT cd_notification_channels_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT cd_notification_channels_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system')),
    CONSTRAINT cd_notification_channels_rate_is_bounded CHECK (rate >= 1 AND rate <= 60)
);
COMMENT ON TABLE cd_notification_channels IS 'Where notifications are sent to. Rows are kept, as messages refer to them; removed_at ends one.';
COMMENT ON COLUMN cd_notification_channels.config IS 'Address and names of credentials as the kind has them, never a secret; checked when it is saved.';
COMMENT ON COLUMN cd_notification_channels.rate IS 'How many messages it receives within a minute; the last of a minute is a digest of what waits.';
COMMENT ON COLUMN cd_notification_channels.window_at IS 'When the present minute began.';
COMMENT ON COLUMN cd_notification_channels.window_count IS 'How many messages were begun in it.';
CREATE UNIQUE INDEX cd_notification_channels_name_is_unique ON cd_notification_channels (organization_id, name) WHERE removed_at IS NULL;
CREATE TRIGGER cd_notification_channels_touch BEFORE UPDATE ON cd_notification_channels FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_notification_routes (
    organization_id bigint NOT NULL CONSTRAINT cd_notification_routes_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    channel_id      bigint NOT NULL,
    name            text NOT NULL,
    config          jsonb NOT NULL,
    enabled         boolean NOT NULL,
    principal_type  text NOT NULL,
    principal_id    bigint NOT NULL,
    principal_name  text NOT NULL,
    changed_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notification_routes_channel FOREIGN KEY (organization_id, channel_id)
        REFERENCES cd_notification_channels (organization_id, id),
    CONSTRAINT cd_notification_routes_config_is_an_object CHECK (jsonb_typeof(config) = 'object'),
    CONSTRAINT cd_notification_routes_config_is_bounded CHECK (length((config)::text) <= 32768),
    CONSTRAINT cd_notification_routes_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT cd_notification_routes_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_notification_routes IS 'What channels are sent, and how. A channel without routes is sent what is worth it by default. Rows are kept; removed_at ends one.';
COMMENT ON COLUMN cd_notification_routes.config IS 'What it matches, digests and quiet hours; checked when it is saved.';
CREATE UNIQUE INDEX cd_notification_routes_name_is_unique ON cd_notification_routes (organization_id, name) WHERE removed_at IS NULL;
CREATE TRIGGER cd_notification_routes_touch BEFORE UPDATE ON cd_notification_routes FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_notifications (
    organization_id bigint NOT NULL CONSTRAINT cd_notifications_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    moment          text NOT NULL,
    cause           text NOT NULL,
    at              timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    application_id  bigint,
    environment_id  bigint,
    rollout_id      bigint,
    subject_id      bigint NOT NULL DEFAULT 0,
    subject         text NOT NULL DEFAULT '',
    principal_type  text NOT NULL DEFAULT 'system',
    principal_id    bigint NOT NULL DEFAULT 0,
    reason          text NOT NULL DEFAULT '',
    routed_at       timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notifications_once UNIQUE (organization_id, cause),
    CONSTRAINT cd_notifications_application FOREIGN KEY (organization_id, application_id) REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_notifications_environment FOREIGN KEY (organization_id, environment_id) REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_notifications_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_notifications_cause_is_bounded CHECK (octet_length(cause) >= 1 AND octet_length(cause) <= 700),
    CONSTRAINT cd_notifications_moment_is_given CHECK (moment ~ '^[a-z_]{1,63}$'),
    CONSTRAINT cd_notifications_principal_is_known CHECK (principal_type IN ('user', 'agent', 'policy', 'schedule', 'system'))
);
COMMENT ON TABLE cd_notifications IS 'Moments that are worth a notification, each once, added with what caused them while the organization has a channel. They are no record: rows end 30 days later.';
COMMENT ON COLUMN cd_notifications.cause IS 'Identifies what happened.';
COMMENT ON COLUMN cd_notifications.due_at IS 'When it is routed: for the beginning and the end of a freeze, that time.';
COMMENT ON COLUMN cd_notifications.routed_at IS 'When messages were made of it; null before.';
COMMENT ON COLUMN cd_notifications.subject IS 'The gate, the key of the check or the name of the trigger that it is about; empty for none.';
COMMENT ON COLUMN cd_notifications.subject_id IS 'The freeze or the trigger that it is about; 0 for none.';
CREATE INDEX cd_notifications_by_time ON cd_notifications (organization_id, at) WHERE routed_at IS NOT NULL;
CREATE INDEX cd_notifications_unrouted ON cd_notifications (organization_id, due_at, id) WHERE routed_at IS NULL;
CREATE TRIGGER cd_notifications_touch BEFORE UPDATE ON cd_notifications FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_notification_messages (
    organization_id  bigint NOT NULL CONSTRAINT cd_notification_messages_organization REFERENCES cd_organizations (id),
    id               bigint GENERATED ALWAYS AS IDENTITY,
    channel_id       bigint NOT NULL,
    route_id         bigint,
    rollout_id       bigint,
    key              text NOT NULL,
    severity         smallint NOT NULL,
    notification_ids bigint[] NOT NULL,
    left_out         integer NOT NULL DEFAULT 0,
    revision         integer NOT NULL DEFAULT 1,
    sent_revision    integer NOT NULL DEFAULT 0,
    sent_count       integer NOT NULL DEFAULT 0,
    state            text NOT NULL DEFAULT 'pending',
    due_at           timestamptz NOT NULL,
    attempts         integer NOT NULL DEFAULT 0,
    run              integer NOT NULL DEFAULT 0,
    started          boolean NOT NULL DEFAULT false,
    inputs           jsonb,
    begun_revision   integer NOT NULL DEFAULT 0,
    begun_count      integer NOT NULL DEFAULT 0,
    ref              text NOT NULL DEFAULT '',
    title            text NOT NULL DEFAULT '',
    error            text NOT NULL DEFAULT '',
    sent_at          timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notification_messages_one_of_a_key UNIQUE (organization_id, channel_id, key),
    CONSTRAINT cd_notification_messages_channel FOREIGN KEY (organization_id, channel_id)
        REFERENCES cd_notification_channels (organization_id, id),
    CONSTRAINT cd_notification_messages_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_notification_messages_route FOREIGN KEY (organization_id, route_id)
        REFERENCES cd_notification_routes (organization_id, id),
    CONSTRAINT cd_notification_messages_failed_says_why CHECK (state <> 'failed' OR error <> ''),
    CONSTRAINT cd_notification_messages_is_bounded CHECK (cardinality(notification_ids) >= 1 AND cardinality(notification_ids) <= 200),
    CONSTRAINT cd_notification_messages_key_is_bounded CHECK (octet_length(key) >= 1 AND octet_length(key) <= 255),
    CONSTRAINT cd_notification_messages_ref_is_bounded CHECK (octet_length(ref) <= 255),
    CONSTRAINT cd_notification_messages_sending_has_inputs CHECK (state <> 'sending' OR inputs IS NOT NULL AND run > 0),
    CONSTRAINT cd_notification_messages_severity_is_known CHECK (severity >= 0 AND severity <= 2),
    CONSTRAINT cd_notification_messages_state_is_known CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'digested'))
);
COMMENT ON TABLE cd_notification_messages IS 'Messages in channels: one of each key, such as a rollout, which is updated. Rows end 30 days after their last change.';
COMMENT ON COLUMN cd_notification_messages.due_at IS 'When it is sent, or looked at again while a run sends it.';
COMMENT ON COLUMN cd_notification_messages.inputs IS 'Of the present run: begun again, it is begun with the same.';
COMMENT ON COLUMN cd_notification_messages.notification_ids IS 'What it is about, oldest first; left_out counts those beyond the bound.';
COMMENT ON COLUMN cd_notification_messages.ref IS 'How the channel calls the message, for updates; empty where it cannot be updated.';
COMMENT ON COLUMN cd_notification_messages.revision IS 'Counts what it was to say; sent_revision is what the channel has.';
COMMENT ON COLUMN cd_notification_messages.run IS 'Counts the runs that were begun for it, and names the present one together with its id.';
COMMENT ON COLUMN cd_notification_messages.sent_count IS 'How many of notification_ids the channel has.';
COMMENT ON COLUMN cd_notification_messages.started IS 'Whether the engine has the present run.';
CREATE INDEX cd_notification_messages_due ON cd_notification_messages (organization_id, due_at, id) WHERE state IN ('pending', 'sending');
CREATE INDEX cd_notification_messages_of_state ON cd_notification_messages (organization_id, state, id);
CREATE INDEX cd_notification_messages_waiting ON cd_notification_messages (organization_id, channel_id, due_at, id) WHERE state = 'pending';
CREATE TRIGGER cd_notification_messages_touch BEFORE UPDATE ON cd_notification_messages FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_organizations_with_due_notifications(until timestamptz) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- From organization to organization along the indexes: what it costs is how many organizations have something open, not how much.
    RETURN QUERY WITH RECURSIVE unrouted AS (
        (SELECT n.organization_id FROM cd_notifications n WHERE n.routed_at IS NULL ORDER BY n.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT n.organization_id FROM cd_notifications n WHERE n.routed_at IS NULL AND n.organization_id > u.organization_id ORDER BY n.organization_id LIMIT 1)
        FROM unrouted u WHERE u.organization_id IS NOT NULL
    ), unsent AS (
        (SELECT m.organization_id FROM cd_notification_messages m WHERE m.state IN ('pending', 'sending') ORDER BY m.organization_id LIMIT 1)
        UNION ALL
        SELECT (SELECT m.organization_id FROM cd_notification_messages m WHERE m.state IN ('pending', 'sending') AND m.organization_id > u.organization_id
            ORDER BY m.organization_id LIMIT 1)
        FROM unsent u WHERE u.organization_id IS NOT NULL
    )
    SELECT u.organization_id FROM unrouted u WHERE EXISTS (
        SELECT FROM cd_notifications n WHERE n.organization_id = u.organization_id AND n.routed_at IS NULL AND n.due_at <= until)
    UNION
    SELECT u.organization_id FROM unsent u WHERE EXISTS (
        SELECT FROM cd_notification_messages m WHERE m.organization_id = u.organization_id AND m.state IN ('pending', 'sending') AND m.due_at <= until);
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_organizations_with_due_notifications IS 'The workers are for all organizations.';

-- +goose StatementBegin
CREATE FUNCTION cd_forget_notifications(before timestamptz, most integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), old AS (
        SELECT n.organization_id, n.id FROM cd_notifications n JOIN own ON own.id = n.organization_id
        WHERE n.routed_at IS NOT NULL AND n.at < before ORDER BY n.at LIMIT most
    ), settled AS (
        SELECT m.organization_id, m.id FROM cd_notification_messages m JOIN own ON own.id = m.organization_id
        WHERE m.state IN ('sent', 'failed', 'digested') AND m.updated_at < before ORDER BY m.id LIMIT most
    ), gone AS (
        DELETE FROM cd_notifications n USING old WHERE n.organization_id = old.organization_id AND n.id = old.id RETURNING 1
    ), away AS (
        DELETE FROM cd_notification_messages m USING settled WHERE m.organization_id = settled.organization_id AND m.id = settled.id RETURNING 1
    )
    SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM away)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_notifications IS 'Notifications are no record: the journals have what they are about.';

-- +goose Down
DROP FUNCTION cd_forget_notifications;
DROP FUNCTION cd_organizations_with_due_notifications;
DROP TABLE cd_notification_messages;
DROP TABLE cd_notifications;
DROP TABLE cd_notification_routes;
DROP TABLE cd_notification_channels;
