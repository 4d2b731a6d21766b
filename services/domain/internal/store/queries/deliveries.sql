-- name: Attempts :many
-- Rollouts of an application that were over within a window, and some before and behind it: what failed before the window may be mended in
-- it, what was completed in it may be taken back later, and an environment may be over before, or a little after, its rollout. A row for
-- each requested environment that was over, having begun; one without an environment (0) where there is none. A window is read in
-- pages, each behind the last rollout of the one before; what is around it comes with the page that asks for it.
WITH near AS MATERIALIZED (
    (SELECT t.id, false AS within FROM cd_rollouts t
     WHERE t.organization_id = @organization_id AND t.application_id = @application_id AND t.finished_at < @since::timestamptz
     ORDER BY t.finished_at DESC, t.id DESC LIMIT @around::integer)
    UNION ALL
    (SELECT t.id, true FROM cd_rollouts t
     WHERE t.organization_id = @organization_id AND t.application_id = @application_id AND (t.finished_at, t.id) > (@after_at::timestamptz, @after_id::bigint) AND t.finished_at < @until::timestamptz
     ORDER BY t.finished_at, t.id LIMIT @most::integer)
    UNION ALL
    (SELECT t.id, false FROM cd_rollouts t
     WHERE t.organization_id = @organization_id AND t.application_id = @application_id AND t.finished_at >= @until::timestamptz
     ORDER BY t.finished_at, t.id LIMIT @around::integer)
    UNION ALL
    (SELECT t.id, false FROM cd_rollouts t
     WHERE t.organization_id = @organization_id AND t.application_id = @application_id AND t.finished_at IS NULL AND @around::integer > 0)
)
SELECT r.id AS rollout_id, n.within, r.version_set_id, s.created_at AS made_at, COALESCE(q.requested_at, r.created_at)::timestamptz AS asked_at,
       r.finished_at AS over_at, COALESCE(e.environment_id, 0)::bigint AS environment_id, COALESCE(e.state, 'pending')::text AS state,
       e.started_at, e.finished_at, COALESCE(e.previous_version_set_id, 0)::bigint AS previous_version_set_id,
       (e.environment_id IS NOT NULL AND NOT EXISTS (SELECT FROM cd_rollouts o
           JOIN cd_rollout_environments x ON x.organization_id = @organization_id AND x.rollout_id = o.id AND x.environment_id = e.environment_id
           WHERE o.organization_id = @organization_id AND o.version_set_id = r.version_set_id AND o.id < r.id AND x.state = 'completed'))::boolean AS is_first
FROM near n
JOIN cd_rollouts r ON r.organization_id = @organization_id AND r.id = n.id
JOIN cd_version_sets s ON s.organization_id = @organization_id AND s.id = r.version_set_id
LEFT JOIN cd_queued_rollouts q ON q.organization_id = @organization_id AND q.made_rollout_id = r.id
LEFT JOIN cd_rollout_environments e ON e.organization_id = @organization_id AND e.rollout_id = r.id
    AND e.environment_id = ANY(@environments::bigint[]) AND e.started_at IS NOT NULL AND e.finished_at IS NOT NULL
ORDER BY r.id, e.position;
