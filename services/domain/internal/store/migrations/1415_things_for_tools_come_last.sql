-- What is for tools is routed after everything else: there may be very much of it, and people do not wait for it (D62).

-- +goose Up
CREATE INDEX cd_notifications_by_class ON cd_notifications (organization_id,
    (CASE WHEN moment IN ('environment_created', 'environment_changed', 'environment_archived', 'environment_restored', 'artifact_published',
    'artifact_deleted') THEN 2 WHEN moment = 'rollout_advanced' THEN 1 ELSE 0 END),
    due_at, id) WHERE routed_at IS NULL;
DROP INDEX cd_notifications_to_route;

-- +goose Down
CREATE INDEX cd_notifications_to_route ON cd_notifications (organization_id, (moment = 'rollout_advanced'), due_at, id) WHERE routed_at IS NULL;
DROP INDEX cd_notifications_by_class;
