-- The end of something is stored with the notification of its beginning, and members receive a warning before a credential expires (D62).

-- +goose Up
CREATE INDEX cd_notifications_that_end ON cd_notifications (organization_id, environment_id, moment, at)
    WHERE moment IN ('agent_offline', 'drift', 'check_failed', 'credential_expires');

-- What only updates messages is routed after what people are to read.
CREATE INDEX cd_notifications_to_route ON cd_notifications (organization_id, (moment = 'rollout_advanced'), due_at, id) WHERE routed_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION cd_warn_of_credentials(now timestamptz) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    -- The nearest of the days alone: one that is made late is warned of once. Those that end first come first, and the others with the next look.
    INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, subject_id, subject)
    SELECT c.organization_id, 'credential_expires', 'credential:' || c.id || ':' || c.version || ':' || floor(extract(epoch FROM c.expires_at))::bigint || ':' || d.days,
        now, now, c.id, c.name
    FROM cd_credentials c
    CROSS JOIN LATERAL (SELECT min(w.days) AS days FROM (VALUES (1), (7), (14)) w(days) WHERE c.expires_at <= now + make_interval(days => w.days)) d
    WHERE c.revoked_at IS NULL AND c.expires_at > now AND c.expires_at <= now + interval '14 days'
      AND EXISTS (SELECT FROM cd_notification_channels n WHERE n.organization_id = c.organization_id AND n.enabled AND n.removed_at IS NULL)
      AND NOT EXISTS (SELECT FROM cd_notifications w WHERE w.organization_id = c.organization_id
        AND w.cause = 'credential:' || c.id || ':' || c.version || ':' || floor(extract(epoch FROM c.expires_at))::bigint || ':' || d.days)
    ORDER BY c.expires_at, c.organization_id, c.id LIMIT 1000
    ON CONFLICT (organization_id, cause) DO NOTHING;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_warn_of_credentials IS 'The workers are for all organizations.';

-- +goose Down
DROP FUNCTION cd_warn_of_credentials;
DROP INDEX cd_notifications_to_route;
DROP INDEX cd_notifications_that_end;
