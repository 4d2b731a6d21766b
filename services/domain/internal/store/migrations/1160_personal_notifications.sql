-- Notifications of members for themselves (D62): where a member can be reached, what each has subscribed to, and whose a message is.

-- +goose Up
CREATE TABLE cd_notification_recipients (
    organization_id bigint NOT NULL CONSTRAINT cd_notification_recipients_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    member_id       bigint NOT NULL,
    email           text NOT NULL DEFAULT '' CONSTRAINT cd_notification_recipients_email_is_bounded CHECK (octet_length(email) <= 255),
    verified_at     timestamptz,
    window_at       timestamptz NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    window_count    integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, member_id),
    CONSTRAINT cd_notification_recipients_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_notification_recipients_email_was_verified CHECK ((email = '') = (verified_at IS NULL))
);
COMMENT ON TABLE cd_notification_recipients IS 'Where members receive what they have subscribed to. Rows end when their member is removed.';
COMMENT ON COLUMN cd_notification_recipients.email IS 'The address that the identity provider has verified at the latest sign-in; empty for none.';
COMMENT ON COLUMN cd_notification_recipients.verified_at IS 'When that sign-in was.';
COMMENT ON COLUMN cd_notification_recipients.window_at IS 'When the present minute began, in which window_count messages to the member were begun.';
CREATE TRIGGER cd_notification_recipients_touch BEFORE UPDATE ON cd_notification_recipients FOR EACH ROW EXECUTE FUNCTION cd_touch();

CREATE TABLE cd_notification_subscriptions (
    organization_id bigint NOT NULL CONSTRAINT cd_notification_subscriptions_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    member_id       bigint NOT NULL,
    channel_id      bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_notification_subscriptions_name_is_plain CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    application_id  bigint,
    environment_id  bigint,
    moments         text[] NOT NULL,
    severities      smallint[] NOT NULL,
    tiers           text[] NOT NULL,
    involvement     text NOT NULL CONSTRAINT cd_notification_subscriptions_involvement_is_known CHECK (involvement IN ('', 'begun', 'waiting', 'may_approve')),
    config          jsonb NOT NULL,
    enabled         boolean NOT NULL,
    changed_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notification_subscriptions_recipient FOREIGN KEY (organization_id, member_id)
        REFERENCES cd_notification_recipients (organization_id, member_id) ON DELETE CASCADE,
    CONSTRAINT cd_notification_subscriptions_channel FOREIGN KEY (organization_id, channel_id)
        REFERENCES cd_notification_channels (organization_id, id),
    CONSTRAINT cd_notification_subscriptions_application FOREIGN KEY (organization_id, application_id)
        REFERENCES cd_applications (organization_id, id),
    CONSTRAINT cd_notification_subscriptions_environment FOREIGN KEY (organization_id, environment_id)
        REFERENCES cd_environments (organization_id, id),
    CONSTRAINT cd_notification_subscriptions_config_is_an_object CHECK (jsonb_typeof(config) = 'object'),
    CONSTRAINT cd_notification_subscriptions_config_is_bounded CHECK (length((config)::text) <= 4096)
);
COMMENT ON TABLE cd_notification_subscriptions IS 'What members have sent to themselves. Rows end when they are removed, with their channel, or with their member.';
COMMENT ON COLUMN cd_notification_subscriptions.application_id IS 'Only what is about it; null for all. Likewise environment_id, and the lists where they are not empty.';
COMMENT ON COLUMN cd_notification_subscriptions.involvement IS 'Only rollouts that the member has begun, or takes part in, or questions that the member may answer; empty for all.';
COMMENT ON COLUMN cd_notification_subscriptions.config IS 'As the member has saved it, with digests and quiet hours; the other columns are read off it.';
CREATE UNIQUE INDEX cd_notification_subscriptions_name_is_unique ON cd_notification_subscriptions (organization_id, member_id, name);
CREATE INDEX cd_notification_subscriptions_by_application ON cd_notification_subscriptions (organization_id, (COALESCE(application_id, 0))) WHERE enabled;
CREATE INDEX cd_notification_subscriptions_of_channel ON cd_notification_subscriptions (organization_id, channel_id);
CREATE TRIGGER cd_notification_subscriptions_touch BEFORE UPDATE ON cd_notification_subscriptions FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_forget_recipient() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM cd_notification_recipients r WHERE r.organization_id = new.organization_id AND r.member_id = new.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_recipient IS 'Who has left receives nothing more, whichever release removes the member.';
CREATE TRIGGER cd_members_forget_recipient AFTER UPDATE OF removed_at ON cd_members FOR EACH ROW
    WHEN (new.removed_at IS NOT NULL AND old.removed_at IS NULL) EXECUTE FUNCTION cd_forget_recipient();

-- +goose StatementBegin
CREATE FUNCTION cd_forget_subscriptions(of_member bigint, of_channel bigint, of_name text) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (
        DELETE FROM cd_notification_subscriptions s
        WHERE s.organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint
          AND (s.member_id = of_member AND s.name = of_name OR s.channel_id = of_channel) RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_subscriptions(bigint, bigint, text) IS 'The one of a member and a name, and those to a channel: the journal of changes has what they were.';

ALTER TABLE cd_notification_messages ADD COLUMN member_id bigint,
    ADD CONSTRAINT cd_notification_messages_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id);
COMMENT ON COLUMN cd_notification_messages.member_id IS 'The member whose own it is; null for one to the channel itself.';
DROP INDEX cd_notification_messages_waiting;
DROP INDEX cd_notification_messages_of_state;
CREATE INDEX cd_notification_messages_waiting ON cd_notification_messages (organization_id, channel_id, (COALESCE(member_id, 0)), due_at, id) WHERE state = 'pending';
CREATE INDEX cd_notification_messages_of_state ON cd_notification_messages (organization_id, (COALESCE(member_id, 0)), state, id);
CREATE INDEX cd_notification_messages_of_member ON cd_notification_messages (organization_id, (COALESCE(member_id, 0)), id);
-- What is for channels does not wait for what is for each of many members.
CREATE INDEX cd_notification_messages_due_in_channels ON cd_notification_messages (organization_id, due_at, id)
    WHERE state IN ('pending', 'sending') AND member_id IS NULL;

-- +goose Down
DELETE FROM cd_notification_messages WHERE member_id IS NOT NULL;
DROP INDEX cd_notification_messages_due_in_channels;
DROP INDEX cd_notification_messages_of_member;
DROP INDEX cd_notification_messages_of_state;
DROP INDEX cd_notification_messages_waiting;
ALTER TABLE cd_notification_messages DROP COLUMN member_id;
CREATE INDEX cd_notification_messages_of_state ON cd_notification_messages (organization_id, state, id);
CREATE INDEX cd_notification_messages_waiting ON cd_notification_messages (organization_id, channel_id, due_at, id) WHERE state = 'pending';
DROP TRIGGER cd_members_forget_recipient ON cd_members;
DROP FUNCTION cd_forget_recipient;
DROP FUNCTION cd_forget_subscriptions(bigint, bigint, text);
DROP TABLE cd_notification_subscriptions;
DROP TABLE cd_notification_recipients;
