-- Steps of rollouts are stored only while something names them, which is asked for each of them: few subscriptions do (R4-29).

-- +goose Up
CREATE INDEX cd_notification_subscriptions_of_steps ON cd_notification_subscriptions (organization_id)
    WHERE enabled AND moments && ARRAY['rollout_queued', 'rollout_planned', 'rollout_started', 'environment_entered', 'environment_completed',
        'environment_failed'];

-- +goose Down
DROP INDEX cd_notification_subscriptions_of_steps;
