-- name: ListAudit :many
-- What people, machines, policies and schedules did: the journal of changes, and what they did to rollouts. A condition that was not given has an
-- empty value.
SELECT a.id, a.journal, a.principal_type, a.principal_id, a.principal_name, a.action, a.subject_kind, a.subject_number, a.subject_name,
       a.application_id, a.environment_id, a.reason, a.detail, a.before, a.after, a.trace_id, a.created_at
FROM (
    (SELECT c.id, 'change'::text AS journal, c.principal_type, c.principal_id::bigint AS principal_id, c.principal_name, c.action, c.subject_kind,
            c.subject_number::bigint AS subject_number, c.subject_name, COALESCE(c.application_id, 0)::bigint AS application_id,
            COALESCE(c.environment_id, 0)::bigint AS environment_id, c.reason::text AS reason, c.detail::text AS detail,
            COALESCE(c.before, 'null'::jsonb)::jsonb AS before, COALESCE(c.after, 'null'::jsonb)::jsonb AS after, c.trace_id, c.created_at
     FROM cd_changes c
     WHERE c.organization_id = @organization_id AND c.id > @above AND c.id < @below
       AND (@principal_id::bigint = 0 OR c.principal_type IN ('user', 'agent') AND c.principal_id = @principal_id)
       AND (@action::text = '' OR c.action = @action)
       AND (@application_id::bigint = 0 OR c.application_id = @application_id)
       AND (@environment_id::bigint = 0 OR c.environment_id = @environment_id)
       AND c.created_at >= @since AND c.created_at < @until
     ORDER BY CASE WHEN NOT @falling::boolean THEN c.id END, CASE WHEN @falling::boolean THEN c.id END DESC LIMIT @at_most)
    UNION ALL
    (SELECT t.id, 'rollout'::text, t.principal_type, COALESCE(t.principal_id, 0)::bigint, COALESCE(m.name, t.principal_type), t.event, 'rollout'::text,
            t.rollout_id::bigint, ''::text, r.application_id::bigint, 0::bigint, COALESCE(t.reason, '')::text, COALESCE(t.gate_id, '')::text,
            'null'::jsonb, 'null'::jsonb, ''::text, t.created_at
     FROM cd_rollout_transitions t
     JOIN cd_rollouts r ON r.organization_id = t.organization_id AND r.id = t.rollout_id
     LEFT JOIN cd_members m ON m.organization_id = t.organization_id AND m.id = t.principal_id AND t.principal_type IN ('user', 'agent')
     WHERE t.organization_id = @organization_id AND t.principal_type <> 'system' AND t.id > @above AND t.id < @below
       AND (@principal_id::bigint = 0 OR t.principal_type IN ('user', 'agent') AND t.principal_id = @principal_id)
       AND (@action::text = '' OR t.event = @action)
       AND (@application_id::bigint = 0 OR r.application_id = @application_id)
       AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
            WHERE e.organization_id = t.organization_id AND e.rollout_id = t.rollout_id AND e.environment_id = @environment_id))
       AND t.created_at >= @since AND t.created_at < @until
     ORDER BY CASE WHEN NOT @falling::boolean THEN t.id END, CASE WHEN @falling::boolean THEN t.id END DESC LIMIT @at_most)
) a
ORDER BY CASE WHEN NOT @falling::boolean THEN a.id END, CASE WHEN @falling::boolean THEN a.id END DESC
LIMIT @at_most;

-- name: CountAudit :one
SELECT ((SELECT count(*) FROM cd_changes c
     WHERE c.organization_id = @organization_id
       AND (@principal_id::bigint = 0 OR c.principal_type IN ('user', 'agent') AND c.principal_id = @principal_id)
       AND (@action::text = '' OR c.action = @action)
       AND (@application_id::bigint = 0 OR c.application_id = @application_id)
       AND (@environment_id::bigint = 0 OR c.environment_id = @environment_id)
       AND c.created_at >= @since AND c.created_at < @until)
  + (SELECT count(*) FROM cd_rollout_transitions t
     JOIN cd_rollouts r ON r.organization_id = t.organization_id AND r.id = t.rollout_id
     WHERE t.organization_id = @organization_id AND t.principal_type <> 'system'
       AND (@principal_id::bigint = 0 OR t.principal_type IN ('user', 'agent') AND t.principal_id = @principal_id)
       AND (@action::text = '' OR t.event = @action)
       AND (@application_id::bigint = 0 OR r.application_id = @application_id)
       AND (@environment_id::bigint = 0 OR EXISTS (SELECT FROM cd_rollout_environments e
            WHERE e.organization_id = t.organization_id AND e.rollout_id = t.rollout_id AND e.environment_id = @environment_id))
       AND t.created_at >= @since AND t.created_at < @until))::bigint;
