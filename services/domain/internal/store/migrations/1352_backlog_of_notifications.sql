-- How many messages wait, and since when the oldest is due, for metrics (D62).

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_notification_backlog(OUT waiting bigint, OUT oldest_seconds double precision) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    SELECT count(*), COALESCE(GREATEST(0, extract(epoch FROM clock_timestamp() - min(m.due_at))), 0) INTO waiting, oldest_seconds
    FROM cd_notification_messages m WHERE m.state IN ('pending', 'sending');
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_notification_backlog IS 'Metrics are of the installation.';

-- +goose Down
DROP FUNCTION cd_notification_backlog;
