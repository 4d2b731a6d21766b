-- name: SourcesOfRepository :many
-- Keys are compared by bytes, so that an index finds the prefix: the end is the first key behind all that have it.
SELECT a.id, s.application_id, a.service_id, s.name AS service, a.source_ref, a.source_config
FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = @organization_id AND s.id = a.service_id AND s.retired_at IS NULL
JOIN cd_applications p ON p.organization_id = @organization_id AND p.id = s.application_id AND p.archived_at IS NULL
WHERE a.organization_id = @organization_id AND a.disabled_at IS NULL AND a.removed_at IS NULL AND a.match_key COLLATE "C" >= @prefix::text AND a.match_key COLLATE "C" < @behind::text
ORDER BY p.name, a.id LIMIT @most::integer;

-- name: InsertTrigger :one
INSERT INTO cd_triggers (organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
VALUES (@organization_id, @application_id, @name, @kind, @config, @enabled, @principal_type, @principal_id, @principal_name, @changed_at)
RETURNING *;

-- name: SaveTrigger :exec
UPDATE cd_triggers SET config = @config, enabled = @enabled, removed_at = @removed_at, principal_type = @principal_type, principal_id = @principal_id,
    principal_name = @principal_name, changed_at = @changed_at
WHERE organization_id = @organization_id AND id = @id;

-- name: TriggersByApplication :many
SELECT * FROM cd_triggers WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND removed_at IS NULL
ORDER BY application_id, name;

-- name: WasRolledOut :one
SELECT EXISTS (SELECT FROM cd_rollouts WHERE organization_id = @organization_id AND application_id = @application_id);

-- name: TriggersOfKind :many
SELECT * FROM cd_triggers WHERE organization_id = @organization_id AND kind = @kind AND removed_at IS NULL AND enabled ORDER BY id;

-- name: TriggersOfEvent :many
-- Those that an event, or one of several of a type, may match, by its keys, and how much each has to decide about: what they have beside the
-- rarest condition is for the caller to compare.
SELECT sqlc.embed(t), (SELECT count(*) FROM (
    SELECT FROM cd_trigger_signals s WHERE s.organization_id = t.organization_id AND s.trigger_id = t.id AND s.state = 'pending' LIMIT @most
) p) AS pending
FROM cd_triggers t WHERE t.organization_id = @organization_id AND t.removed_at IS NULL AND t.enabled AND t.kind = 'event' AND t.id IN (
    SELECT k.trigger_id FROM cd_trigger_keys k
    WHERE k.organization_id = @organization_id AND k.type_key = ANY(@types::text[]) AND k.detail_key = ANY(@details::text[])
) ORDER BY t.id;

-- name: KnownCauses :many
SELECT s.cause FROM cd_trigger_signals s
WHERE s.organization_id = @organization_id AND s.trigger_id = @trigger_id AND s.cause = ANY(@causes::text[]);

-- name: SignalApplications :exec
-- One signal for each trigger of a kind that applications have. A cause that a trigger knows already is left alone.
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at)
SELECT t.organization_id, t.id, w.cause, @at::timestamptz, @at::timestamptz
FROM (SELECT unnest(@applications::bigint[]) AS application_id, unnest(@causes::text[]) AS cause) w
JOIN cd_triggers t ON t.organization_id = @organization_id AND t.application_id = w.application_id AND t.kind = @kind AND t.enabled AND t.removed_at IS NULL
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: LockFactTriggers :exec
-- Those that could decide by what becomes known of a version, before anything else of the transaction is locked.
SELECT FROM cd_triggers t WHERE t.organization_id = @organization_id AND t.kind = 'version' AND t.enabled AND t.removed_at IS NULL
  AND t.config ?| ARRAY['facts', 'labels'] AND t.application_id = (
    SELECT s.application_id FROM cd_versions v
    JOIN cd_artifact_sources a ON a.organization_id = v.organization_id AND a.id = v.artifact_source_id
    JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
    WHERE v.organization_id = @organization_id AND v.id = @version_id
) ORDER BY t.id FOR NO KEY UPDATE OF t;

-- name: SignalFacts :exec
-- What became known of a version is a cause of its own for each report, where the trigger has declined exactly that set for want of it. Where
-- a decision is still to come, that one finds it.
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at)
SELECT t.organization_id, t.id, 'facts:' || newest.id || ':' || (
    SELECT max(r.id) FROM cd_version_reports r WHERE r.organization_id = @organization_id AND r.version_id = @version_id
), @at::timestamptz, @at::timestamptz
FROM cd_versions v
JOIN cd_artifact_sources a ON a.organization_id = v.organization_id AND a.id = v.artifact_source_id
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
JOIN cd_triggers t ON t.organization_id = s.organization_id AND t.application_id = s.application_id AND t.kind = 'version' AND t.enabled
    AND t.removed_at IS NULL AND t.config ?| ARRAY['facts', 'labels']
CROSS JOIN LATERAL (
    SELECT COALESCE(
        (SELECT n.version_set_id FROM cd_newest_version_sets n WHERE n.organization_id = t.organization_id AND n.application_id = t.application_id),
        (SELECT l.id FROM cd_version_sets l WHERE l.organization_id = t.organization_id AND l.application_id = t.application_id AND NOT l.curated
         ORDER BY l.id DESC LIMIT 1)) AS id
) newest
JOIN cd_version_set_entries e ON e.organization_id = t.organization_id AND e.version_set_id = newest.id AND e.version_id = v.id
CROSS JOIN LATERAL ( -- the latest decision about the set
    SELECT o.lacks_facts FROM cd_trigger_signals o
    WHERE o.organization_id = t.organization_id AND o.trigger_id = t.id AND o.version_set_id = newest.id AND o.state = 'decided'
    ORDER BY o.decided_at DESC, o.id DESC LIMIT 1
) latest
WHERE v.organization_id = @organization_id AND v.id = @version_id AND latest.lacks_facts
  AND NOT EXISTS (SELECT FROM cd_trigger_signals o WHERE o.organization_id = t.organization_id AND o.trigger_id = t.id AND o.state = 'pending')
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: SignalDrift :exec
-- Drift of the same objects is one cause as long as the drift lasts, and there are ten at most.
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at)
SELECT t.organization_id, t.id, w.period || ':' || @objects::text, @at::timestamptz, @at::timestamptz
FROM cd_application_environments e
JOIN cd_application_environment_reconciliations r ON r.organization_id = e.organization_id AND r.application_environment_id = e.id AND r.objects <> '[]'
JOIN cd_triggers t ON t.organization_id = @organization_id AND t.application_id = e.application_id AND t.kind = 'drift' AND t.enabled AND t.removed_at IS NULL
CROSS JOIN LATERAL (SELECT 'drift:' || e.id || ':' || to_char(r.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS period) w
WHERE e.organization_id = @organization_id AND e.id = @application_environment_id
  AND (SELECT count(*) FROM cd_trigger_signals s
       WHERE s.organization_id = t.organization_id AND s.trigger_id = t.id AND starts_with(s.cause, w.period)) < 10
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: InsertSignal :execrows
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at) VALUES (@organization_id, @trigger_id, @cause, @at, @due_at)
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: InsertEvents :exec
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at, edit, sender_type, sender_id, sender_name)
SELECT @organization_id, n.trigger_id, n.cause, @at, @at, NULLIF(n.edit, '')::jsonb, @sender_type, @sender_id, @sender_name
FROM (SELECT unnest(@triggers::bigint[]) AS trigger_id, unnest(@causes::text[]) AS cause, unnest(@edits::text[]) AS edit, generate_subscripts(@triggers::bigint[], 1) AS place) n
ORDER BY n.place -- that of their numbers, by which they are decided about
ON CONFLICT (organization_id, trigger_id, cause) DO NOTHING;

-- name: SaveSignalEdit :exec
UPDATE cd_trigger_signals SET edit = @edit, due_at = @due_at, edit_begun = COALESCE(edit_begun, sqlc.narg(begun)::timestamptz)
WHERE organization_id = @organization_id AND id = @id AND state = 'pending' AND COALESCE((edit ->> 'attempt')::integer, 0) = @attempt::integer AND edit ->> 'state' IS NULL;

-- name: EditOfCommit :many
-- The edits of a trigger that have committed one of some commits, or proposed it.
SELECT cause, edit_commit::text AS commit FROM cd_trigger_signals
WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND edit_commit IS NOT NULL AND edit_commit = ANY(@commits::text[]);

-- name: EditBegun :one
-- When the edit of a trigger began that has so many later ones within a time; those that changed nothing do not count.
SELECT edit_begun::timestamptz AS begun FROM cd_trigger_signals
WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND edit_commit IS NOT NULL AND edit_begun > @after AND edit_begun <= @at
ORDER BY edit_begun DESC OFFSET @later::integer LIMIT 1;

-- name: DueTrigger :one
-- One of the triggers whose signals have been due longest, the oldest first; those that others decide about are skipped. Each is looked up and
-- locked by itself, until one can be.
SELECT sqlc.embed(t) FROM (
    SELECT DISTINCT f.trigger_id FROM (
        SELECT s.trigger_id FROM cd_trigger_signals s
        WHERE s.organization_id = @organization_id AND s.state = 'pending' AND s.due_at <= @at ORDER BY s.due_at, s.id LIMIT 64
    ) f ORDER BY f.trigger_id
) d CROSS JOIN LATERAL (
    SELECT * FROM cd_triggers t WHERE t.organization_id = @organization_id AND t.id = d.trigger_id FOR NO KEY UPDATE SKIP LOCKED
) t LIMIT 1;

-- name: PendingSignals :many
SELECT * FROM cd_trigger_signals WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND state = 'pending' ORDER BY id LIMIT 1000;

-- name: DecideSignals :exec
UPDATE cd_trigger_signals SET state = 'decided', outcome = @outcome, reason = @reason, version_set_id = @version_set_id, rollout_id = @rollout_id, decided_at = @at,
    lacks_facts = @lacks_facts
WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: PutOffSignals :exec
UPDATE cd_trigger_signals SET outcome = 'waiting', reason = @reason, version_set_id = @version_set_id, due_at = @due_at, decided_at = @at
WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) AND state = 'pending';

-- name: PutOffTrigger :exec
UPDATE cd_trigger_signals SET outcome = 'waiting', reason = @reason, due_at = @due_at, decided_at = @at
WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND state = 'pending' AND due_at < @due_at;

-- name: SettleQueuedSignals :exec
-- The outcome of a rollout that a trigger had queued.
UPDATE cd_trigger_signals SET outcome = @outcome, reason = @reason, rollout_id = @rollout_id, decided_at = now()
WHERE organization_id = @organization_id AND trigger_id = @trigger_id AND outcome = 'queued';

-- name: LatestDecisions :many
-- The latest decisions of each trigger, the latest first; what was not decided about yet comes first.
SELECT s.* FROM unnest(@ids::bigint[]) AS t(id)
CROSS JOIN LATERAL (
    SELECT * FROM cd_trigger_signals n WHERE n.organization_id = @organization_id AND n.trigger_id = t.id ORDER BY n.id DESC LIMIT @most
) s
ORDER BY s.trigger_id, s.id DESC;

-- name: OrganizationsWithDueSignals :many
-- Across organizations, on purpose: the workers are for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_signals(@at) AS organization_id;

-- name: ForgetSignals :one
SELECT cd_forget_signals(@before::timestamptz, @most::integer)::bigint;

-- name: ManualTriggers :many
SELECT * FROM cd_triggers WHERE organization_id = @organization_id AND application_id = @application_id AND kind = 'manual' AND removed_at IS NULL;

-- name: InsertPromotionHold :exec
INSERT INTO cd_promotion_holds (organization_id, application_id, environment_id, rollout_id, since)
VALUES (@organization_id, @application_id, @environment_id, @rollout_id, @since)
ON CONFLICT (organization_id, application_id, environment_id) WHERE released_at IS NULL DO NOTHING;

-- name: PromotionHolds :many
SELECT * FROM cd_promotion_holds WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) AND released_at IS NULL
ORDER BY application_id, id;

-- name: LockPromotionHold :one
SELECT * FROM cd_promotion_holds
WHERE organization_id = @organization_id AND application_id = @application_id AND environment_id = @environment_id AND released_at IS NULL FOR UPDATE;

-- name: ReleasePromotionHold :exec
UPDATE cd_promotion_holds SET released_at = @at WHERE organization_id = @organization_id AND id = @id;

-- name: EnvironmentsOfCommit :many
-- Where deployments of an application have recorded a commit, with whichever attempt.
SELECT DISTINCT e.environment_id FROM (
    SELECT l.organization_id, l.deployment_id, l.commit_sha FROM cd_deployment_snapshots l
    WHERE l.organization_id = @organization_id AND l.commit_sha = @commit_sha
    UNION ALL
    SELECT b.organization_id, b.deployment_id, b.commit_sha FROM cd_deployment_attempts b
    WHERE b.organization_id = @organization_id AND b.commit_sha = @commit_sha
) s
JOIN cd_deployments d ON d.organization_id = s.organization_id AND d.id = s.deployment_id
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
WHERE r.application_id = @application_id;
