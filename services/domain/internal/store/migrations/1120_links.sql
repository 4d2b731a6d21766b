-- Links in messages (D63): each opens the question that its message asks, once. What is signed is in the link; here is that it was opened.

-- +goose Up
CREATE TABLE cd_notification_links (
    organization_id bigint NOT NULL CONSTRAINT cd_notification_links_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    message_id      bigint NOT NULL,
    run             integer NOT NULL CONSTRAINT cd_notification_links_run_is_given CHECK (run > 0),
    request_id      bigint NOT NULL,
    rollout_id      bigint,
    gate_id         text NOT NULL,
    member_id       bigint NOT NULL,
    member_name     text NOT NULL,
    opened_at       timestamptz NOT NULL,
    answered_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_notification_links_once UNIQUE (organization_id, message_id, run),
    CONSTRAINT cd_notification_links_is_about_a_question CHECK (gate_id = '' OR rollout_id IS NOT NULL),
    CONSTRAINT cd_notification_links_message FOREIGN KEY (organization_id, message_id) REFERENCES cd_notification_messages (organization_id, id) ON DELETE CASCADE,
    CONSTRAINT cd_notification_links_rollout FOREIGN KEY (organization_id, rollout_id) REFERENCES cd_rollouts (organization_id, id),
    CONSTRAINT cd_notification_links_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id)
);
CREATE INDEX cd_notification_links_of_gate ON cd_notification_links (organization_id, rollout_id, gate_id, member_id) WHERE answered_at IS NULL;
CREATE INDEX cd_notification_links_unanswered ON cd_notification_links (organization_id, request_id, member_id) WHERE answered_at IS NULL;
COMMENT ON TABLE cd_notification_links IS 'Links that were opened: who opened which, and when they answered. Rows end with their messages.';
COMMENT ON COLUMN cd_notification_links.run IS 'The run that sent the link: each sends one of its own.';
COMMENT ON COLUMN cd_notification_links.request_id IS 'What was asked: the row of the journal that requests an approval, or the call request.';
COMMENT ON COLUMN cd_notification_links.gate_id IS 'The gate of the rollout; empty for a call.';
COMMENT ON COLUMN cd_notification_links.answered_at IS 'When the member answered the question afterwards; null if they did not.';
CREATE TRIGGER cd_notification_links_touch BEFORE UPDATE ON cd_notification_links FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_notification_links;
