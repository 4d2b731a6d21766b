-- name: InsertNotification :exec
-- Only while the organization has a channel, and what is for tools only while a route names it: replicas of before would send it to
-- all routes. A cause that is known already is left alone.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_id, rollout_id, subject_id, subject,
    principal_type, principal_id, reason)
SELECT @organization_id, @moment::text, @cause, @at::timestamptz, @due_at::timestamptz, sqlc.narg(application_id)::bigint, sqlc.narg(environment_id)::bigint,
    sqlc.narg(rollout_id)::bigint, @subject_id::bigint, @subject::text, @principal_type::text, @principal_id::bigint, @reason::text
WHERE EXISTS (SELECT FROM cd_notification_channels c WHERE c.organization_id = @organization_id AND c.enabled AND c.removed_at IS NULL)
  AND (NOT @for_tools::boolean OR EXISTS (SELECT FROM cd_notification_routes r JOIN cd_notification_channels c
    ON c.organization_id = r.organization_id AND c.id = r.channel_id
    WHERE r.organization_id = @organization_id AND r.enabled AND r.removed_at IS NULL AND r.config -> 'events' ? @moment::text
      AND c.enabled AND c.removed_at IS NULL))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertStep :exec
-- A step of a rollout (R4-29), only while a route or a subscription names it. An environment of the rollout says which rollout it is.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, environment_id, rollout_id, subject, principal_type, principal_id, reason)
SELECT @organization_id, @moment::text, @cause, @at::timestamptz, @at::timestamptz, e.environment_id, COALESCE(e.rollout_id, @rollout_id::bigint),
    @subject::text, @principal_type::text, @principal_id::bigint, @reason::text
FROM (SELECT @rollout_environment_id::bigint AS id) x
LEFT JOIN cd_rollout_environments e ON e.organization_id = @organization_id AND e.id = x.id
WHERE EXISTS (SELECT FROM cd_notification_routes r JOIN cd_notification_channels c ON c.organization_id = r.organization_id AND c.id = r.channel_id
    WHERE r.organization_id = @organization_id AND r.enabled AND r.removed_at IS NULL AND r.config -> 'events' ? @moment::text
      AND c.enabled AND c.removed_at IS NULL)
  OR EXISTS (SELECT FROM cd_notification_subscriptions s WHERE s.organization_id = @organization_id AND s.enabled AND @moment::text = ANY(s.moments)
    AND s.moments && ARRAY['rollout_queued', 'rollout_planned', 'rollout_started', 'environment_entered', 'environment_completed',
        'environment_failed'])
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertQueuedStep :exec
-- A rollout that waits in the queue, with what it waits for, whose place it takes there, and where it goes: without environments, wherever the
-- pipeline does. Its subject is the version set.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_ids, subject, principal_type, principal_id,
    reason)
SELECT @organization_id, 'rollout_queued', @cause, @at::timestamptz, @at::timestamptz, q.application_id,
    ARRAY(SELECT e.id FROM cd_application_environments x
        JOIN cd_environments e ON e.organization_id = x.organization_id AND e.id = x.environment_id
        WHERE x.organization_id = q.organization_id AND x.application_id = q.application_id
          AND (q.environments = '{}' AND x.current OR e.name = ANY(q.environments)) ORDER BY e.id),
    v.name, @principal_type::text, @principal_id::bigint, left(COALESCE('it waits for the end of rollout_' || a.id, CASE WHEN @compares::boolean
        THEN 'it waits for the drivers to compare its manifests' ELSE 'it is next' END)
        || COALESCE('; it takes the place of ' || CASE WHEN d.id = v.id THEN 'an earlier request for the same version set' ELSE d.name || ' in the queue' END, '')
        || '; asked for: ' || @reason::text, 1000)
FROM cd_queued_rollouts q
JOIN cd_version_sets v ON v.organization_id = q.organization_id AND v.id = q.version_set_id
LEFT JOIN cd_version_sets d ON d.organization_id = q.organization_id AND d.id = @displaced_version_set_id::bigint
LEFT JOIN cd_rollouts a ON a.organization_id = q.organization_id AND a.application_id = q.application_id
    AND a.state IN ('pending', 'in_progress', 'paused')
WHERE q.organization_id = @organization_id AND q.application_id = @application_id AND q.state = 'pending'
  AND (EXISTS (SELECT FROM cd_notification_routes r JOIN cd_notification_channels c ON c.organization_id = r.organization_id AND c.id = r.channel_id
    WHERE r.organization_id = @organization_id AND r.enabled AND r.removed_at IS NULL AND r.config -> 'events' ? 'rollout_queued'
      AND c.enabled AND c.removed_at IS NULL)
  OR EXISTS (SELECT FROM cd_notification_subscriptions s WHERE s.organization_id = @organization_id AND s.enabled AND 'rollout_queued' = ANY(s.moments)
    AND s.moments && ARRAY['rollout_queued', 'rollout_planned', 'rollout_started', 'environment_entered', 'environment_completed',
        'environment_failed']))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertDroppedStep :exec
-- A rollout that has left the queue and does not begin, with the reason. It goes where InsertQueuedStep has said. There are few of them, so the
-- subscriptions are looked up by organization.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_ids, subject, principal_type, principal_id,
    reason)
SELECT @organization_id, 'rollout_dropped', @cause, @at::timestamptz, @at::timestamptz, q.application_id,
    ARRAY(SELECT e.id FROM cd_application_environments x
        JOIN cd_environments e ON e.organization_id = x.organization_id AND e.id = x.environment_id
        WHERE x.organization_id = q.organization_id AND x.application_id = q.application_id
          AND (q.environments = '{}' AND x.current OR e.name = ANY(q.environments)) ORDER BY e.id),
    v.name, q.principal_type, COALESCE(q.principal_id, 0), left(q.outcome || CASE WHEN q.reason = '' THEN '' ELSE '; asked for: ' || q.reason END, 1000)
FROM cd_queued_rollouts q
JOIN cd_version_sets v ON v.organization_id = q.organization_id AND v.id = q.version_set_id
WHERE q.organization_id = @organization_id AND q.id = @id
  AND (EXISTS (SELECT FROM cd_notification_routes r JOIN cd_notification_channels c ON c.organization_id = r.organization_id AND c.id = r.channel_id
    WHERE r.organization_id = @organization_id AND r.enabled AND r.removed_at IS NULL AND r.config -> 'events' ? 'rollout_dropped'
      AND c.enabled AND c.removed_at IS NULL)
  OR EXISTS (SELECT FROM cd_notification_subscriptions s WHERE s.organization_id = @organization_id AND s.enabled AND 'rollout_dropped' = ANY(s.moments)))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: NotifiedQueue :many
-- Where a rollout goes that was put into the queue, or has left it without beginning.
SELECT e.id, e.name, e.tier FROM cd_notifications n
JOIN cd_environments e ON e.organization_id = n.organization_id AND e.id = ANY(n.environment_ids)
WHERE n.organization_id = @organization_id AND n.id = @id ORDER BY e.name;

-- name: InsertAdvance :exec
-- What only updates the message of a rollout: only while the organization has a channel whose messages can be updated. An environment of the
-- rollout says which rollout it is.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, environment_id, rollout_id, subject, principal_type, principal_id, reason)
SELECT @organization_id, 'rollout_advanced', @cause, @at::timestamptz, @due_at::timestamptz, e.environment_id, COALESCE(e.rollout_id, @rollout_id::bigint),
    @subject::text, @principal_type::text, @principal_id::bigint, @reason::text
FROM (SELECT @rollout_environment_id::bigint AS id) r
LEFT JOIN cd_rollout_environments e ON e.organization_id = @organization_id AND e.id = r.id
WHERE EXISTS (SELECT FROM cd_notification_channels c WHERE c.organization_id = @organization_id AND c.enabled AND c.removed_at IS NULL
    AND (c.kind IN ('slack', 'mattermost', 'discord') AND c.config ? 'target' OR c.kind = 'teams' AND c.config ? 'updates'))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertCheckNotification :exec
-- A check that failed, with the rollout that it stops, if there is one. One that has not ended is the same failure, for the same rollout: it is
-- added once.
WITH active AS (
    SELECT (SELECT r.id FROM cd_rollouts r WHERE r.organization_id = @organization_id AND r.application_id = @application_id AND r.state IN ('pending', 'in_progress', 'paused')
        AND r.version_set_id = @version_set_id ORDER BY r.id DESC LIMIT 1) AS id
)
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_id, rollout_id, subject_id, subject, principal_type,
    principal_id, reason)
SELECT @organization_id, 'check_failed', @cause, @at::timestamptz, @at::timestamptz, @application_id::bigint, @environment_id::bigint, a.id,
    @version_set_id::bigint, @subject::text, @principal_type::text, @principal_id::bigint, @reason::text
FROM active a
WHERE EXISTS (SELECT FROM cd_notification_channels c WHERE c.organization_id = @organization_id AND c.enabled AND c.removed_at IS NULL)
  AND NOT EXISTS (SELECT FROM cd_notifications b WHERE b.organization_id = @organization_id AND b.moment = 'check_failed'
    AND b.environment_id = @environment_id AND b.application_id = @application_id AND b.subject = @subject AND b.subject_id = @version_set_id
    AND b.rollout_id IS NOT DISTINCT FROM a.id
    AND NOT EXISTS (SELECT FROM cd_notifications x WHERE x.organization_id = @organization_id AND x.cause = 'end:' || b.id))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertEndNotification :exec
-- The end of the latest moment of a kind in an environment, and of a check of all that have not ended: its failure is one of each rollout. Once,
-- and nothing if there was none.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_id, rollout_id, subject_id, subject)
SELECT b.organization_id, @moment::text, 'end:' || b.id, @at::timestamptz, @at::timestamptz, b.application_id, b.environment_id, b.rollout_id, b.subject_id, b.subject
FROM cd_notifications b
WHERE b.organization_id = @organization_id AND b.moment = @begun::text AND b.environment_id = @environment_id::bigint AND b.at <= @at
  AND COALESCE(b.application_id, 0) = @application_id::bigint AND b.subject = @subject::text AND b.subject_id = @subject_id::bigint
  AND (b.moment <> 'check_failed' OR NOT EXISTS (SELECT FROM cd_notifications x WHERE x.organization_id = b.organization_id AND x.cause = 'end:' || b.id))
ORDER BY b.at DESC, b.id DESC LIMIT CASE WHEN @begun = 'check_failed' THEN 100 ELSE 1 END
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertDriftEndNotification :exec
-- The end of drift, once the latest observation is the first without it.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_id)
SELECT b.organization_id, 'drift_ended', 'end:' || b.id, @at::timestamptz, @at::timestamptz, b.application_id, b.environment_id
FROM cd_application_environments e
JOIN cd_application_environment_reconciliations r ON r.organization_id = e.organization_id AND r.application_environment_id = e.id AND r.objects = '[]'
    AND r.since = r.observed_at
JOIN LATERAL (SELECT d.* FROM cd_notifications d WHERE d.organization_id = e.organization_id AND d.moment = 'drift' AND d.environment_id = e.environment_id
    AND d.application_id = e.application_id ORDER BY d.at DESC, d.id DESC LIMIT 1) b ON true
WHERE e.organization_id = @organization_id AND e.id = @application_environment_id
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: NotificationBacklog :one
-- Across organizations, on purpose: for metrics.
SELECT waiting::bigint AS waiting, oldest_seconds::double precision AS oldest_seconds FROM cd_notification_backlog();

-- name: WarnOfCredentials :exec
-- Across organizations, on purpose: the workers are for all.
SELECT cd_warn_of_credentials(@at::timestamptz);

-- name: InsertCredentialReplaced :exec
-- The end of what was stored of values of a credential that it does not have any more, once each.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, subject_id, subject)
SELECT DISTINCT b.organization_id, 'credential_replaced', 'replaced:' || b.subject_id || ':' || split_part(b.cause, ':', 3) || ':' || split_part(b.cause, ':', 4),
    @at::timestamptz, @at::timestamptz, b.subject_id, b.subject
FROM cd_notifications b JOIN cd_credentials c ON c.organization_id = b.organization_id AND c.id = b.subject_id
WHERE b.organization_id = @organization_id AND b.moment = 'credential_expires' AND b.subject_id = @id
  AND (c.revoked_at IS NOT NULL OR c.expires_at IS NULL
    OR NOT starts_with(b.cause, 'credential:' || c.id || ':' || c.version || ':' || floor(extract(epoch FROM c.expires_at))::bigint || ':'))
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: NotifiedCredential :one
-- When the present value of a credential ends; no row for one that was revoked or has no end.
SELECT version, expires_at::timestamptz AS expires_at FROM cd_credentials
WHERE organization_id = @organization_id AND id = @id AND revoked_at IS NULL AND expires_at IS NOT NULL;

-- name: AttachAdvance :exec
-- Has the message of a rollout that channels have, or are about to have, be updated. The advance before it is left out, where the channel
-- does not want details: only the latest is shown.
UPDATE cd_notification_messages m SET
    notification_ids = CASE WHEN x.replaces THEN m.notification_ids[1:cardinality(m.notification_ids) - 1] || @notification_id::bigint
        WHEN cardinality(m.notification_ids) < 200 THEN m.notification_ids || @notification_id::bigint ELSE m.notification_ids END,
    sent_count = CASE WHEN x.replaces THEN LEAST(m.sent_count, cardinality(m.notification_ids) - 1) ELSE m.sent_count END,
    begun_count = CASE WHEN x.replaces THEN LEAST(m.begun_count, cardinality(m.notification_ids) - 1) ELSE m.begun_count END,
    revision = m.revision + 1, due_at = CASE WHEN m.state = 'sent' THEN @due_at::timestamptz ELSE m.due_at END,
    attempts = CASE WHEN m.state = 'sent' THEN 0 ELSE m.attempts END, state = CASE WHEN m.state = 'sent' THEN 'pending' ELSE m.state END
FROM (SELECT o.id, (cardinality(o.notification_ids) > 1 AND (cardinality(o.notification_ids) >= 150 OR NOT o.channel_id = ANY(@details::bigint[]))
        AND EXISTS (SELECT FROM cd_notifications n WHERE n.organization_id = o.organization_id
            AND n.id = o.notification_ids[cardinality(o.notification_ids)] AND n.moment = 'rollout_advanced')) AS replaces
    FROM cd_notification_messages o WHERE o.organization_id = @organization_id AND o.channel_id = ANY(@channels::bigint[]) AND o.key = @key::text
    ORDER BY o.channel_id FOR UPDATE) x
WHERE m.organization_id = @organization_id AND m.id = x.id AND NOT (@notification_id::bigint = ANY(m.notification_ids))
  AND NOT EXISTS (SELECT FROM cd_notifications n WHERE n.organization_id = m.organization_id AND n.cause = @cause::text || ':step'
    AND n.id = ANY(m.notification_ids))
  AND (m.state IN ('pending', 'sending') OR m.state = 'sent' AND m.ref <> '');

-- name: AlertsOfFailedRollouts :many
-- Messages in channels for alerts about rollouts of the same application that have failed, which no other rollout has made up for: one that
-- has completed wherever they were, or were to be if they began nowhere. From the alerts of 30 days to the rollouts, not the other way.
WITH alerts AS MATERIALIZED (
    SELECT m.id, m.channel_id, m.key, m.rollout_id, m.notification_ids FROM cd_notification_channels c
    JOIN cd_notification_messages m ON m.organization_id = c.organization_id AND m.channel_id = c.id AND m.state <> 'failed' AND m.key = 'rollout:' || m.rollout_id
        AND m.updated_at > @since::timestamptz
    WHERE c.organization_id = @organization_id AND c.kind IN ('pagerduty', 'opsgenie') AND c.enabled AND c.removed_at IS NULL
)
SELECT m.channel_id, m.key, m.rollout_id::bigint AS rollout_id FROM alerts m
JOIN cd_rollouts f ON f.organization_id = @organization_id AND f.id = m.rollout_id AND f.state = 'failed'
JOIN cd_rollouts r ON r.organization_id = f.organization_id AND r.id = @rollout_id AND f.application_id = r.application_id AND f.id < r.id
WHERE NOT EXISTS (SELECT FROM cd_rollout_environments e WHERE e.organization_id = f.organization_id AND e.rollout_id = f.id
        AND (e.started_at IS NOT NULL OR NOT EXISTS (SELECT FROM cd_rollout_environments s WHERE s.organization_id = f.organization_id AND s.rollout_id = f.id
            AND s.started_at IS NOT NULL))
        AND NOT EXISTS (SELECT FROM cd_rollout_environments o WHERE o.organization_id = r.organization_id AND o.rollout_id = r.id
            AND o.environment_id = e.environment_id AND o.state = 'completed'))
  AND EXISTS (SELECT FROM cd_rollout_environments e WHERE e.organization_id = f.organization_id AND e.rollout_id = f.id)
  AND NOT EXISTS (SELECT FROM cd_notifications n WHERE n.organization_id = f.organization_id AND n.id = ANY(m.notification_ids) AND n.rollout_id <> m.rollout_id)
ORDER BY m.channel_id, m.id LIMIT 100;

-- name: InsertDriftNotification :exec
-- Drift is one cause as long as it lasts.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, environment_id, reason)
SELECT e.organization_id, 'drift', 'drift:' || e.id || ':' || to_char(r.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), @at::timestamptz, @at::timestamptz,
    e.application_id, e.environment_id, left(r.drift, 1000)
FROM cd_application_environments e
JOIN cd_application_environment_reconciliations r ON r.organization_id = e.organization_id AND r.application_environment_id = e.id AND r.objects <> '[]'
WHERE e.organization_id = @organization_id AND e.id = @application_environment_id
  AND EXISTS (SELECT FROM cd_notification_channels c WHERE c.organization_id = @organization_id AND c.enabled AND c.removed_at IS NULL)
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertDeclinedNotification :exec
-- A trigger that decided not to begin. What it lacks of a set is reported again only if that is something else than before.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, subject_id, subject, principal_type, reason)
SELECT t.organization_id, 'trigger_declined', 'trigger:' || t.id || ':' || @signal_id::bigint, @at::timestamptz, @at::timestamptz, t.application_id, t.id, t.name,
    'policy', left(@reason::text, 1000)
FROM cd_triggers t
WHERE t.organization_id = @organization_id AND t.id = @trigger_id
  AND EXISTS (SELECT FROM cd_notification_channels c WHERE c.organization_id = @organization_id AND c.enabled AND c.removed_at IS NULL)
  AND NOT EXISTS (
    SELECT FROM (
        SELECT o.lacks_facts, o.reason FROM cd_trigger_signals o
        WHERE o.organization_id = @organization_id AND o.trigger_id = @trigger_id AND o.version_set_id = sqlc.narg(version_set_id)::bigint
          AND o.state = 'decided' AND o.id <> ALL(@signals::bigint[])
        ORDER BY o.decided_at DESC, o.id DESC LIMIT 1
    ) l WHERE l.lacks_facts AND l.reason = @reason::text)
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: InsertArtifactNotifications :exec
-- A moment of versions, each once for its mark, only while a route names the moment: there may be many of them. The lists go
-- side by side.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, subject_id, subject)
SELECT v.organization_id, @moment::text, 'version:' || v.id || ':' || @moment::text || o.mark, @at::timestamptz, @at::timestamptz, s.application_id, v.id,
    s.name || ' ' || v.name
FROM (SELECT unnest(@versions::bigint[]) AS version_id, unnest(@marks::text[]) AS mark) o
JOIN cd_versions v ON v.organization_id = @organization_id AND v.id = o.version_id
JOIN cd_artifact_sources a ON a.organization_id = v.organization_id AND a.id = v.artifact_source_id
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE EXISTS (SELECT FROM cd_notification_routes r JOIN cd_notification_channels c ON c.organization_id = r.organization_id AND c.id = r.channel_id
    WHERE r.organization_id = @organization_id AND r.enabled AND r.removed_at IS NULL AND r.config -> 'events' ? @moment::text
      AND c.enabled AND c.removed_at IS NULL)
ORDER BY v.id
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: NotifiedVersion :one
SELECT a.name AS application, s.name AS service, v.artifact_source_id, v.name AS version, v.digest, v.reference FROM cd_versions v
JOIN cd_artifact_sources o ON o.organization_id = v.organization_id AND o.id = v.artifact_source_id
JOIN cd_services s ON s.organization_id = o.organization_id AND s.id = o.service_id
JOIN cd_applications a ON a.organization_id = s.organization_id AND a.id = s.application_id
WHERE v.organization_id = @organization_id AND v.id = @id;

-- name: OrganizationsWithDueNotifications :many
-- Across organizations, on purpose: the workers are for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_notifications(@at) AS organization_id;

-- name: NotificationChannels :many
SELECT * FROM cd_notification_channels WHERE organization_id = @organization_id AND removed_at IS NULL ORDER BY name;

-- name: LockNotificationChannel :one
SELECT * FROM cd_notification_channels WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: LockNotificationChannels :exec
-- One change of channels and routes of an organization at a time.
SELECT pg_advisory_xact_lock(hashtextextended('notification channels', @organization_id::bigint));

-- name: InsertNotificationChannel :one
INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name, changed_at)
VALUES (@organization_id, @name, @kind, @config, @rate, @enabled, @principal_type, @principal_id, @principal_name, @changed_at)
RETURNING *;

-- name: SaveNotificationChannel :exec
UPDATE cd_notification_channels SET config = @config, rate = @rate, enabled = @enabled, removed_at = @removed_at, principal_type = @principal_type,
    principal_id = @principal_id, principal_name = @principal_name, changed_at = @changed_at
WHERE organization_id = @organization_id AND id = @id;

-- name: CountNotificationMessage :exec
UPDATE cd_notification_channels SET window_at = @window_at, window_count = @window_count WHERE organization_id = @organization_id AND id = @id;

-- name: NotificationRoutes :many
SELECT * FROM cd_notification_routes WHERE organization_id = @organization_id AND removed_at IS NULL ORDER BY name;

-- name: InsertNotificationRoute :one
INSERT INTO cd_notification_routes (organization_id, channel_id, name, config, enabled, principal_type, principal_id, principal_name, changed_at)
VALUES (@organization_id, @channel_id, @name, @config, @enabled, @principal_type, @principal_id, @principal_name, @changed_at)
RETURNING *;

-- name: SaveNotificationRoute :exec
UPDATE cd_notification_routes SET problem = '', channel_id = @channel_id, config = @config, enabled = @enabled, removed_at = @removed_at, principal_type = @principal_type,
    principal_id = @principal_id, principal_name = @principal_name, changed_at = @changed_at
WHERE organization_id = @organization_id AND id = @id;

-- name: SetRouteProblem :exec
UPDATE cd_notification_routes SET problem = @problem WHERE organization_id = @organization_id AND id = @id AND problem <> @problem;

-- name: DueNotification :one
-- The one that has been due longest, those that only update messages behind, and those for tools last: what people are asked does not
-- wait for them. Those that others route are skipped.
SELECT * FROM cd_notifications WHERE organization_id = @organization_id AND routed_at IS NULL AND due_at <= @at
ORDER BY (CASE WHEN moment IN ('environment_created', 'environment_changed', 'environment_archived', 'environment_restored', 'artifact_published',
    'artifact_deleted') THEN 2 WHEN moment = 'rollout_advanced' THEN 1 ELSE 0 END), due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: RouteNotification :exec
UPDATE cd_notifications SET routed_at = @at, moment = @moment WHERE organization_id = @organization_id AND id = @id;

-- name: InsertRoutedNotification :one
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, subject, principal_type, principal_id, routed_at)
VALUES (@organization_id, @moment, @cause, @at, @at, @subject, @principal_type, @principal_id, @at) RETURNING id;

-- name: NotificationsByID :many
SELECT n.*, COALESCE(m.name, n.principal_type)::text AS principal_name, COALESCE(a.name, '')::text AS application, COALESCE(e.name, '')::text AS environment,
    COALESCE(e.tier, '')::text AS tier, COALESCE(d.labels, '{}')::jsonb AS labels
FROM cd_notifications n
LEFT JOIN cd_members m ON m.organization_id = n.organization_id AND m.id = n.principal_id AND n.principal_type IN ('user', 'agent')
LEFT JOIN cd_applications a ON a.organization_id = n.organization_id AND a.id = n.application_id
LEFT JOIN cd_details d ON d.organization_id = n.organization_id AND d.application_id = n.application_id
LEFT JOIN cd_environments e ON e.organization_id = n.organization_id AND e.id = n.environment_id
WHERE n.organization_id = @organization_id AND n.id = ANY(@ids::bigint[]) ORDER BY n.at, n.id;

-- name: NotifiedRollout :one
SELECT r.id, r.state, COALESCE(r.rollback_of, 0)::bigint AS rollback_of, a.id AS application_id, a.name AS application, s.name AS version_set,
    r.version_set_id, COALESCE(m.name, t.principal_type, '')::text AS asked_by, COALESCE(d.labels, '{}')::jsonb AS labels
FROM cd_rollouts r
JOIN cd_applications a ON a.organization_id = r.organization_id AND a.id = r.application_id
LEFT JOIN cd_details d ON d.organization_id = r.organization_id AND d.application_id = r.application_id
JOIN cd_version_sets s ON s.organization_id = r.organization_id AND s.id = r.version_set_id
LEFT JOIN cd_rollout_transitions t ON t.organization_id = r.organization_id AND t.rollout_id = r.id AND t.event = 'create'
LEFT JOIN cd_members m ON m.organization_id = r.organization_id AND m.id = t.principal_id AND t.principal_type IN ('user', 'agent')
WHERE r.organization_id = @organization_id AND r.id = @id LIMIT 1;

-- name: NotifiedEnvironments :many
SELECT e.id, e.name, e.tier, f.state, COALESCE(f.previous_version_set_id, 0)::bigint AS previous_version_set_id FROM cd_rollout_environments f
JOIN cd_environments e ON e.organization_id = f.organization_id AND e.id = f.environment_id
WHERE f.organization_id = @organization_id AND f.rollout_id = @rollout_id ORDER BY f.position;

-- name: NotifiedArtifacts :many
-- What a rollout has brought to the environments that it has completed, and what it has removed there.
SELECT e.id AS environment_id, e.name AS environment, a.name AS application, s.name AS service, v.artifact_source_id, v.name AS version, v.digest,
    v.reference, c.has_previous, c.removed, count(*) OVER () AS in_all
FROM (
    SELECT f.environment_id, f.position, n.service_id, n.version_id, (o.version_id IS NOT NULL)::boolean AS has_previous, false AS removed
    FROM cd_rollouts r
    JOIN cd_rollout_environments f ON f.organization_id = r.organization_id AND f.rollout_id = r.id AND f.state = 'completed'
    JOIN cd_version_set_entries n ON n.organization_id = r.organization_id AND n.version_set_id = r.version_set_id
    LEFT JOIN cd_version_set_entries o ON o.organization_id = f.organization_id AND o.version_set_id = f.previous_version_set_id
        AND o.artifact_source_id = n.artifact_source_id
    WHERE r.organization_id = @organization_id AND r.id = @rollout_id AND o.version_id IS DISTINCT FROM n.version_id
    UNION ALL
    SELECT f.environment_id, f.position, o.service_id, o.version_id, true, true
    FROM cd_rollouts r
    JOIN cd_rollout_environments f ON f.organization_id = r.organization_id AND f.rollout_id = r.id AND f.state = 'completed'
    JOIN cd_version_set_entries o ON o.organization_id = f.organization_id AND o.version_set_id = f.previous_version_set_id
    WHERE r.organization_id = @organization_id AND r.id = @rollout_id AND NOT EXISTS (
        SELECT FROM cd_version_set_entries n WHERE n.organization_id = o.organization_id AND n.version_set_id = r.version_set_id AND n.service_id = o.service_id)
) c
JOIN cd_environments e ON e.organization_id = @organization_id AND e.id = c.environment_id
JOIN cd_services s ON s.organization_id = @organization_id AND s.id = c.service_id
JOIN cd_applications a ON a.organization_id = s.organization_id AND a.id = s.application_id
JOIN cd_versions v ON v.organization_id = @organization_id AND v.id = c.version_id
ORDER BY c.position, s.name, v.id LIMIT @most;

-- name: NotifiedVersions :many
-- What a version set changes beside another one; all of it beside none.
SELECT s.name AS service, v.name AS version, COALESCE(p.name, '')::text AS previous FROM cd_version_set_entries n
JOIN cd_services s ON s.organization_id = n.organization_id AND s.id = n.service_id
JOIN cd_versions v ON v.organization_id = n.organization_id AND v.id = n.version_id
LEFT JOIN cd_version_set_entries o ON o.organization_id = n.organization_id AND o.version_set_id = @previous::bigint AND o.artifact_source_id = n.artifact_source_id
LEFT JOIN cd_versions p ON p.organization_id = o.organization_id AND p.id = o.version_id
WHERE n.organization_id = @organization_id AND n.version_set_id = @version_set_id AND o.version_id IS DISTINCT FROM n.version_id
ORDER BY s.name, v.name LIMIT 21;

-- name: NotifiedGate :one
SELECT COALESCE(g.before_environment_id, 0)::bigint AS environment_id, g.quorum, g.approver_group, g.reason,
    COALESCE((SELECT max(x.due_at) FROM cd_gate_expiries x WHERE x.organization_id = g.organization_id AND x.rollout_id = g.rollout_id AND x.gate_id = g.gate_id AND NOT x.settled), 'epoch')::timestamptz AS expires_at
FROM cd_rollout_gates g WHERE g.organization_id = @organization_id AND g.rollout_id = @rollout_id AND g.gate_id = @gate_id;

-- name: NotifiedFreeze :one
SELECT starts_at, ends_at, ended_at, reason, principal_name, tiers, application_labels, environment_labels,
    (SELECT COALESCE(array_agg(e.name ORDER BY e.name), '{}') FROM cd_environments e WHERE e.organization_id = f.organization_id AND e.id = ANY(f.environment_ids))::text[] AS environments,
    (SELECT COALESCE(array_agg(a.name ORDER BY a.name), '{}') FROM cd_applications a WHERE a.organization_id = f.organization_id AND a.id = ANY(f.application_ids))::text[] AS applications
FROM cd_freezes f WHERE f.organization_id = @organization_id AND f.id = @id;

-- name: AttachNotification :exec
-- Makes the message of a key, or has it say one thing more. One that a run sends now is sent again afterwards; one that waits after a failed
-- attempt continues to wait. What only follows leaves the quiet hours as they are, and what waits for their end does so still.
INSERT INTO cd_notification_messages AS m (organization_id, channel_id, route_id, rollout_id, key, severity, notification_ids, due_at, quiet)
VALUES (@organization_id, @channel_id, sqlc.narg(route_id), sqlc.narg(rollout_id), @key, @severity, ARRAY[@notification_id::bigint], @due_at,
    sqlc.narg(quiet)::jsonb)
ON CONFLICT (organization_id, channel_id, key) DO UPDATE SET
    notification_ids = CASE WHEN cardinality(m.notification_ids) < 200 THEN m.notification_ids || @notification_id::bigint ELSE m.notification_ids END,
    left_out = m.left_out + (cardinality(m.notification_ids) >= 200)::integer,
    revision = m.revision + 1, severity = GREATEST(m.severity, EXCLUDED.severity),
    due_at = CASE WHEN m.state = 'sending' OR m.state = 'pending' AND (m.attempts > 0 OR @waits::boolean AND m.quiet IS NOT NULL) THEN m.due_at WHEN m.state = 'pending' THEN LEAST(m.due_at, EXCLUDED.due_at) ELSE EXCLUDED.due_at END,
    attempts = CASE WHEN m.state IN ('pending', 'sending') THEN m.attempts ELSE 0 END,
    slotted = m.slotted AND m.state = 'pending', quiet = CASE WHEN @follows::boolean THEN m.quiet ELSE EXCLUDED.quiet END,
    state = CASE WHEN m.state = 'sending' THEN m.state ELSE 'pending' END
WHERE NOT (@notification_id::bigint = ANY(m.notification_ids));

-- name: MakeRoomForStep :exec
-- Beyond 150 moments a message has one step at most, the latest, and no advance before it, so that there is room for what people have to know
-- (R4-29). Steps that were never sent are counted.
UPDATE cd_notification_messages m SET notification_ids = x.kept, sent_count = m.sent_count - x.sent, begun_count = m.begun_count - x.begun,
    left_out = m.left_out + x.unsent
FROM (SELECT o.id, l.kept, l.sent, l.begun, l.unsent FROM cd_notification_messages o
    JOIN (SELECT unnest(@channels::bigint[]) AS channel_id, unnest(@keys::text[]) AS key) w ON w.channel_id = o.channel_id AND w.key = o.key
    CROSS JOIN LATERAL (SELECT (array_agg(i.id ORDER BY i.place) FILTER (WHERE NOT i.goes))::bigint[] AS kept,
            (count(*) FILTER (WHERE i.goes AND i.place <= o.sent_count))::integer AS sent,
            (count(*) FILTER (WHERE i.goes AND i.place <= o.begun_count))::integer AS begun,
            (count(*) FILTER (WHERE i.goes AND i.moment <> 'rollout_advanced'
                AND i.place > GREATEST(o.sent_count, CASE WHEN o.state = 'sending' THEN o.begun_count ELSE 0 END)))::integer AS unsent
        FROM (SELECT u.id, u.place, n.moment, u.place >= 150 AND COALESCE(n.moment = ANY(@moments::text[]), false) AS goes
            FROM unnest(o.notification_ids) WITH ORDINALITY u (id, place)
            LEFT JOIN cd_notifications n ON n.organization_id = o.organization_id AND n.id = u.id) i) l
    WHERE o.organization_id = @organization_id AND cardinality(o.notification_ids) >= 150 AND NOT (@notification_id::bigint = ANY(o.notification_ids))
    ORDER BY o.member_id, o.channel_id FOR UPDATE OF o) x
WHERE m.organization_id = @organization_id AND m.id = x.id;

-- name: NotificationMessageExists :one
SELECT EXISTS (SELECT FROM cd_notification_messages WHERE organization_id = @organization_id AND channel_id = @channel_id AND key = @key);

-- name: DueMessage :one
-- The one to a channel that has been due longest; those that others send are skipped.
SELECT * FROM cd_notification_messages WHERE organization_id = @organization_id AND state IN ('pending', 'sending') AND member_id IS NULL AND due_at <= @at
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: DuePersonalMessage :one
-- The same of those to members: of one moment there may be very many, so they come after those to channels.
SELECT * FROM cd_notification_messages WHERE organization_id = @organization_id AND state IN ('pending', 'sending') AND member_id IS NOT NULL AND due_at <= @at
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: LockMessage :one
SELECT * FROM cd_notification_messages WHERE organization_id = @organization_id AND id = @id FOR UPDATE;

-- name: SaveMessage :exec
UPDATE cd_notification_messages SET state = @state, due_at = @due_at, attempts = @attempts, run = @run, started = @started, inputs = sqlc.narg(inputs)::jsonb,
    begun_revision = @begun_revision, begun_count = @begun_count, sent_revision = @sent_revision, sent_count = @sent_count, ref = @ref, title = @title,
    error = @error, template_error = @template_error, slotted = @slotted, sent_at = @sent_at
WHERE organization_id = @organization_id AND id = @id;

-- name: WaitingMessages :many
-- What waits to be sent to a channel or member: what is due or has a turn, without what others look at just now.
SELECT * FROM cd_notification_messages WHERE organization_id = @organization_id AND channel_id = @channel_id AND COALESCE(member_id, 0) = @member_id::bigint
  AND state = 'pending' AND (due_at <= @at OR slotted) AND id <> @beside
ORDER BY due_at, id LIMIT @most FOR UPDATE SKIP LOCKED;

-- name: PutOffMessages :exec
-- Has what a channel is to receive wait for its next minute.
UPDATE cd_notification_messages m SET due_at = @until, slotted = false WHERE m.organization_id = @organization_id AND m.id IN (
    SELECT w.id FROM cd_notification_messages w WHERE w.organization_id = @organization_id AND w.channel_id = @channel_id AND COALESCE(w.member_id, 0) = @member_id::bigint AND w.state = 'pending' AND w.due_at <= @at
    FOR UPDATE SKIP LOCKED);

-- name: ForgetTurns :exec
-- What waits for its turn among all members of a channel is due, without what others look at just now.
UPDATE cd_notification_messages m SET due_at = @at, slotted = false WHERE m.organization_id = @organization_id AND m.id IN (
    SELECT w.id FROM cd_notification_messages w WHERE w.organization_id = @organization_id AND w.channel_id = @channel_id AND w.state = 'pending' AND w.slotted
    FOR UPDATE SKIP LOCKED);

-- name: InsertDigest :one
INSERT INTO cd_notification_messages (organization_id, channel_id, member_id, key, severity, notification_ids, left_out, due_at, quiet)
VALUES (@organization_id, @channel_id, sqlc.narg(member_id), @key, @severity, @notification_ids, @left_out, @due_at, sqlc.narg(quiet)::jsonb) RETURNING *;

-- name: HurryMessage :exec
-- The run that sends a message has ended: it is looked at now.
UPDATE cd_notification_messages SET due_at = LEAST(due_at, @at) WHERE organization_id = @organization_id AND id = @id AND run = @run AND state = 'sending' AND started;

-- name: NotificationMessages :many
SELECT * FROM cd_notification_messages
WHERE organization_id = @organization_id AND COALESCE(member_id, 0) = @member_id::bigint AND (@state::text = '' OR state = @state) AND (@channel_id::bigint = 0 OR channel_id = @channel_id)
  AND (@before::bigint = 0 OR id < @before)
ORDER BY id DESC LIMIT @most;

-- name: ForgetNotifications :one
SELECT cd_forget_notifications(@before::timestamptz, @most::integer)::bigint;

-- name: PutOffNotification :exec
-- One that cannot be routed now must not keep the others from being routed.
UPDATE cd_notifications SET due_at = @until WHERE organization_id = @organization_id AND id = @id AND routed_at IS NULL;

-- name: InsertNotificationLink :many
-- Nothing for a link that was opened before.
INSERT INTO cd_notification_links (organization_id, message_id, run, request_id, rollout_id, gate_id, member_id, member_name, opened_at)
VALUES (@organization_id, @message_id, @run, @request_id, sqlc.narg(rollout_id), @gate_id, @member_id, @member_name, @opened_at)
ON CONFLICT (organization_id, message_id, run) DO NOTHING RETURNING id;

-- name: NotificationLink :one
SELECT * FROM cd_notification_links WHERE organization_id = @organization_id AND message_id = @message_id AND run = @run;

-- name: NotificationLinks :many
SELECT * FROM cd_notification_links WHERE organization_id = @organization_id AND message_id = ANY(@messages::bigint[]) ORDER BY id;

-- name: AnswerNotificationLinks :exec
-- A member has answered a gate: the links to it that they had opened led to the answer.
UPDATE cd_notification_links l SET answered_at = @at
WHERE l.organization_id = @organization_id AND l.member_id = @member_id AND l.answered_at IS NULL AND l.rollout_id = @rollout_id AND l.gate_id = @gate_id;

-- name: AnswerNotificationLinksOfCall :exec
-- A member has answered a call request.
UPDATE cd_notification_links l SET answered_at = @at
WHERE l.organization_id = @organization_id AND l.member_id = @member_id AND l.answered_at IS NULL AND l.request_id = @request_id AND l.gate_id = '';

-- name: InsertCallNotification :exec
-- A call request that waits for people, or an answer to it.
INSERT INTO cd_notifications (organization_id, moment, cause, at, due_at, application_id, rollout_id, subject_id, subject, principal_type, principal_id, reason)
SELECT c.organization_id, @moment, @cause, @at::timestamptz, @at::timestamptz, r.application_id, c.rollout_id, c.id, @subject::text, @principal_type::text, @principal_id::bigint, @reason::text
FROM cd_call_requests c LEFT JOIN cd_rollouts r ON r.organization_id = c.organization_id AND r.id = c.rollout_id
WHERE c.organization_id = @organization_id AND c.id = @id
  AND EXISTS (SELECT FROM cd_notification_channels n WHERE n.organization_id = @organization_id AND n.enabled AND n.removed_at IS NULL)
ON CONFLICT (organization_id, cause) DO NOTHING;

-- name: NotificationSubscribers :many
-- Everybody whose subscription is for a moment. Who may answer its question is decided by the rules of approvals, for those that only want
-- to hear of that. The first of a member's subscriptions that matches counts, by name.
SELECT s.member_id, s.channel_id, s.involvement, s.config, m.name, m.kind, m.role FROM cd_notification_subscriptions s
JOIN cd_members m ON m.organization_id = s.organization_id AND m.id = s.member_id AND m.removed_at IS NULL
WHERE s.organization_id = @organization_id AND s.enabled AND s.channel_id = ANY(@channels::bigint[])
  AND COALESCE(s.application_id, 0) = ANY(ARRAY[0, @application_id::bigint])
  AND (s.environment_id IS NULL OR s.environment_id = ANY(@environments::bigint[]))
  AND (s.moments = '{}' AND NOT @named::boolean OR @moment::text = ANY(s.moments)) AND (s.severities = '{}' OR @severity::smallint = ANY(s.severities))
  AND (s.tiers = '{}' OR s.tiers && @tiers::text[])
  AND (s.involvement = '' OR s.involvement = 'may_approve' AND @asks::boolean
    OR s.involvement IN ('begun', 'waiting') AND s.member_id = @requester::bigint
    OR s.involvement = 'begun' AND s.member_id IN (SELECT t.principal_id FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id
      AND t.rollout_id = @rollout_id::bigint AND t.event = 'create' AND t.principal_type = 'user')
    OR s.involvement = 'waiting' AND s.member_id IN (SELECT t.principal_id FROM cd_rollout_transitions t WHERE t.organization_id = @organization_id
      AND t.rollout_id = @rollout_id::bigint AND t.event IN ('create', 'approve', 'resume', 'retry') AND t.principal_type = 'user'))
ORDER BY s.member_id, s.channel_id, s.name;

-- name: AttachPersonalNotification :execrows
-- AttachNotification for the messages of many members at once. A question does not wait for the turn that its message has.
INSERT INTO cd_notification_messages AS m (organization_id, channel_id, member_id, rollout_id, key, severity, notification_ids, due_at, quiet)
SELECT @organization_id::bigint, o.channel_id, o.member_id, NULLIF(o.rollout_id, 0), o.key, @severity::smallint, ARRAY[@notification_id::bigint], o.due_at,
    NULLIF(o.quiet, '')::jsonb
FROM (SELECT unnest(@channels::bigint[]) AS channel_id, unnest(@members::bigint[]) AS member_id, unnest(@rollouts::bigint[]) AS rollout_id,
    unnest(@keys::text[]) AS key, unnest(@dues::timestamptz[]) AS due_at,
    unnest(@quiets::text[]) AS quiet) o
ON CONFLICT (organization_id, channel_id, key) DO UPDATE SET
    notification_ids = CASE WHEN cardinality(m.notification_ids) < 200 THEN m.notification_ids || @notification_id::bigint ELSE m.notification_ids END,
    left_out = m.left_out + (cardinality(m.notification_ids) >= 200)::integer,
    revision = m.revision + 1, severity = GREATEST(m.severity, EXCLUDED.severity),
    due_at = CASE WHEN m.state = 'sending' OR m.state = 'pending' AND (m.attempts > 0 OR m.slotted AND NOT @asks::boolean) THEN m.due_at WHEN m.state = 'pending' THEN LEAST(m.due_at, EXCLUDED.due_at) ELSE EXCLUDED.due_at END,
    attempts = CASE WHEN m.state IN ('pending', 'sending') THEN m.attempts ELSE 0 END,
    slotted = m.slotted AND m.state = 'pending' AND NOT @asks::boolean, quiet = EXCLUDED.quiet,
    state = CASE WHEN m.state = 'sending' THEN m.state ELSE 'pending' END
WHERE NOT (@notification_id::bigint = ANY(m.notification_ids));

-- name: NotificationSubscriptions :many
SELECT * FROM cd_notification_subscriptions WHERE organization_id = @organization_id AND member_id = @member_id ORDER BY name;

-- name: LockNotificationRecipient :one
-- One change of a member's subscriptions at a time, and one message to the member. It exists from now on; nothing for one who has left.
INSERT INTO cd_notification_recipients AS r (organization_id, member_id)
SELECT m.organization_id, m.id FROM cd_members m WHERE m.organization_id = @organization_id AND m.id = @member_id AND m.removed_at IS NULL
ON CONFLICT (organization_id, member_id) DO UPDATE SET member_id = r.member_id RETURNING *;

-- name: NotificationRecipients :many
SELECT * FROM cd_notification_recipients WHERE organization_id = @organization_id AND member_id = @member_id;

-- name: SaveNotificationSubscription :one
INSERT INTO cd_notification_subscriptions AS s (organization_id, member_id, channel_id, name, application_id, environment_id, moments, severities, tiers, involvement,
    config, enabled, changed_at)
VALUES (@organization_id, @member_id, @channel_id, @name, sqlc.narg(application_id), sqlc.narg(environment_id), @moments, @severities, @tiers, @involvement,
    @config, @enabled, @changed_at)
ON CONFLICT (organization_id, member_id, name) DO UPDATE SET channel_id = EXCLUDED.channel_id, application_id = EXCLUDED.application_id,
    environment_id = EXCLUDED.environment_id, moments = EXCLUDED.moments, severities = EXCLUDED.severities, tiers = EXCLUDED.tiers,
    involvement = EXCLUDED.involvement, config = EXCLUDED.config, enabled = EXCLUDED.enabled, changed_at = EXCLUDED.changed_at
RETURNING *;

-- name: ForgetNotificationSubscriptions :one
-- The one of a member and a name, and those to a channel; 0 for none.
SELECT cd_forget_subscriptions(@member_id::bigint, @channel_id::bigint, @name::text)::bigint;

-- name: CountPersonalMessage :exec
UPDATE cd_notification_recipients SET window_at = @window_at, window_count = @window_count WHERE organization_id = @organization_id AND member_id = @member_id;

-- name: ChatUsersOfMember :many
SELECT kind, workspace, chat_user, chat_name FROM cd_chat_accounts WHERE organization_id = @organization_id AND member_id = @member_id AND removed_at IS NULL
ORDER BY id;

-- name: SetMemberAddress :exec
-- The address that a sign-in has brought; without one, that there is none.
INSERT INTO cd_notification_recipients AS r (organization_id, member_id, email, verified_at)
VALUES (@organization_id, @member_id, @email, CASE WHEN @email::text = '' THEN NULL ELSE @at::timestamptz END)
ON CONFLICT (organization_id, member_id) DO UPDATE SET email = EXCLUDED.email, verified_at = EXCLUDED.verified_at;

-- name: ForgetMemberAddress :exec
-- The identity has no access any more.
UPDATE cd_notification_recipients r SET email = '', verified_at = NULL FROM cd_members m
WHERE r.organization_id = @organization_id AND m.organization_id = r.organization_id AND m.id = r.member_id AND m.issuer = @issuer::text AND m.subject = @subject::text;
